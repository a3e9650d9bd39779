package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestLines_ARunAsALog(t *testing.T) {
	t.Parallel()
	var out, notes strings.Builder
	p := newLinePrinter(&out, &notes, func() time.Time { return testTime(0) }, &runView{})
	for _, e := range example().events {
		if err := p.event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	golden(t, "run_lines.txt", out.String())
}

func TestJSON_ARunAsObjects(t *testing.T) {
	t.Parallel()
	var out, notes strings.Builder
	p := &jsonPrinter{&out, &notes}
	for _, e := range example().events {
		if err := p.event(e); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "run_events.jsonl", out.String())
}

// TestTree_GrowsWithTheRun shows the live tree after every few events.
func TestTree_GrowsWithTheRun(t *testing.T) {
	t.Parallel()
	v := &runView{workflow: "train"}
	for _, step := range [][2]string{{"prepare", "fetch"}, {"fit", "a"}, {"fit", "b"}, {"report", "mail"}} {
		v.step(step[0], step[1])
	}
	var b strings.Builder
	show := func(at time.Time, width, height int) {
		fmt.Fprintf(&b, "--- %s, %dx%d\n", at.Sub(testTime(0)), width, height)
		for _, line := range v.tree(at, width, height, false) {
			b.WriteString(line + "\n")
		}
	}
	show(testTime(0), 100, 24)
	for i, e := range example().events {
		at := messages.GoTime(e.GetAt())
		v.apply(e, at)
		switch i {
		case 3, 4, 9, 10, 11, 20:
			show(at.Add(2*time.Second), 100, 24)
		}
	}
	end := testTime(78 * time.Second)
	show(end, 100, 24)
	show(end, 40, 24)
	show(end, 100, 6)
	golden(t, "run_tree.txt", b.String())
}

func TestTree_FitsEveryTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := &runView{}
		names := rapid.SampledFrom([]string{"a", "long-name-of-a-step", "漢字", "x\x1b[2Jy", "e", "f", "g"})
		h := &history{run: "r"}
		h.started(rapid.String().Draw(t, "workflow"))
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			job, step := names.Draw(t, "job"), names.Draw(t, "step")+fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "n"))
			h.after(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				h.queued(job, step, rapid.String().Draw(t, "requirement"), rapid.String().Draw(t, "why"))
			case 1:
				h.dispatched(job, step, rapid.String().Draw(t, "worker"), 2)
			case 2:
				h.failed(job, step, rapid.String().Draw(t, "error"), "internal")
			case 3:
				h.add(messages.EventStepSucceeded, job, step, nil)
			case 4:
				h.add(messages.EventStepWorkerLost, job, step, nil)
			}
		}
		for _, e := range h.events {
			v.apply(e, testTime(h.now))
		}
		width, height := rapid.IntRange(1, 120).Draw(t, "width"), rapid.IntRange(1, 40).Draw(t, "height")
		lines := v.tree(testTime(h.now), width, height, false)
		if len(lines) > max(height-1, 3) {
			t.Fatalf("%d lines on a terminal of %d", len(lines), height)
		}
		for _, line := range lines {
			if displayWidth(line) > max(width-1, 0) {
				t.Fatalf("%q is wider than %d", line, width)
			}
			if line != safeText(line) || strings.Contains(line, "\n") {
				t.Fatalf("%q is not safe", line)
			}
		}
	})
}

func TestTree_TimesAreThoseOfTheOrchestratorsClock(t *testing.T) {
	t.Parallel()
	// This machine is an hour ahead.
	v := &runView{}
	h := &history{run: "r"}
	h.started("w").queued("j", "s", "any worker", "")
	for _, e := range h.events {
		v.apply(e, testTime(time.Hour))
	}
	lines := strings.Join(v.tree(testTime(time.Hour+3*time.Second), 100, 24, false), "\n")
	if !strings.Contains(lines, "waiting 3.0s for a worker matching any worker") {
		t.Errorf("got\n%s", lines)
	}
}

// screen is a terminal that understands what the live view writes.
type screen struct {
	lines []string
	row   int
}

func (s *screen) write(text string) {
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines = s.lines[:s.row]
			text = text[3:]
		case strings.HasPrefix(text, "\x1b["):
			n := 0
			rest, _ := fmt.Sscanf(text, "\x1b[%dA", &n)
			if rest != 1 {
				panic(fmt.Sprintf("unknown sequence %q", text))
			}
			s.row -= n
			text = text[strings.Index(text, "A")+1:]
		case text[0] == '\r':
			text = text[1:]
		default:
			line, rest, _ := strings.Cut(text, "\n")
			s.lines = append(s.lines[:s.row], line)
			s.row++
			text = rest
		}
	}
}

func TestLive_OutputStaysAboveTheTree(t *testing.T) {
	t.Parallel()
	h := newTestHost(t)
	h.Terminal = func() (int, int, bool) { return 100, 30, true }
	h.env["NO_COLOR"] = "1"
	p := newLivePrinter(h.Host, &runView{})
	for i, e := range example().events {
		if err := p.event(e); err != nil {
			t.Fatal(err)
		}
		if i == 10 {
			p.note("no connection to http://h: cut; trying again for 5m")
		}
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	var s screen
	s.write(h.out.String())
	golden(t, "run_live.txt", strings.Join(s.lines, "\n")+"\n")
}
