package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// topScreen is a model on a screen of its own, and what it asked for.
func topScreen(width, height int) (m *topModel, drilled *[]string) {
	drilled = &[]string{}
	m = &topModel{
		fetch: func() tea.Msg { return topFrame{result: topShown(testTime, 0)} },
		detail: func(pane topPane, name string) tea.Msg {
			*drilled = append(*drilled, string(rune('0'+pane))+name)
			return topDetail{title: name, lines: []string{"one", "two\x1b[2J", "three"}}
		},
	}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(m.Init()())
	return m, drilled
}

// press types keys: single letters, or names such as tab.
func press(m *topModel, keys ...string) tea.Cmd {
	named := map[string]tea.Key{
		"tab": {Code: tea.KeyTab}, "enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp},
		"backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	var cmd tea.Cmd
	for _, k := range keys {
		key, ok := named[k]
		if !ok {
			key = tea.Key{Code: []rune(k)[0], Text: k}
		}
		_, cmd = m.Update(tea.KeyPressMsg(key))
	}
	return cmd
}

func drawn(m *topModel) string { return strings.Join(m.lines(), "\n") + "\n" }

func TestTop_DrawsWhatThereIs(t *testing.T) {
	t.Parallel()
	m, _ := topScreen(120, 30)
	golden(t, "top/first.txt", drawn(m))
	m.Update(topFrame{result: topShown(testTime, 1)})
	golden(t, "top/second.txt", drawn(m))
	for _, size := range [][2]int{{120, 30}, {40, 12}, {10, 3}, {1, 1}, {0, 0}} {
		m, _ := topScreen(size[0], size[1])
		for _, keys := range [][]string{nil, {"/", "x"}, {"esc", "esc", "enter"}} {
			press(m, keys...)
			for _, line := range m.lines() {
				if w := displayWidth(uncolored(line)); w > max(size[0], 0) && size[0] > 2 {
					t.Errorf("a line of %d columns on a screen of %d: %q", w, size[0], line)
				}
				if strings.Contains(line, "\x1b[2J") {
					t.Errorf("%q is obeyed", line)
				}
			}
			if n := len(m.lines()); size[1] > 10 && n > size[1] {
				t.Errorf("%d lines on a screen of %d", n, size[1])
			}
		}
	}
	if v := m.View(); !v.AltScreen || v.Content == "" {
		t.Error("it does not fill the screen")
	}
}

func TestTop_SortsFiltersAndMoves(t *testing.T) {
	t.Parallel()
	m, _ := topScreen(120, 30)
	want := func(what string, pane topPane, names ...string) {
		t.Helper()
		if got := m.names(pane); strings.Join(got, ",") != strings.Join(names, ",") {
			t.Errorf("%s: %q, want %q", what, got, names)
		}
	}
	cpu := "cpu-1\x1b[2J"
	want("by load", paneWorkers, "gpu-1", cpu)
	press(m, "s")
	want("by name", paneWorkers, cpu, "gpu-1")
	press(m, "s", "s")
	want("by load again", paneWorkers, "gpu-1", cpu)
	press(m, "tab", "s")
	want("the queue by age", paneQueue, "target 'edge-1'", "labels gpu=true")
	press(m, "3", "s")
	want("actors by processed", paneActors, "swampd/runs/r1", "swampd/scheduler")
	press(m, "s", "s")
	want("actors by pid", paneActors, "swampd/runs/r1", "swampd/scheduler")
	press(m, "/", "G", "P", "U", "x", "backspace")
	want("a filter that is being typed", paneWorkers, "gpu-1")
	want("it holds for all lists", paneActors)
	press(m, "enter", "q", "down")
	if m.filtering || m.filter != "GPU" {
		t.Errorf("the filter is %q, open %t", m.filter, m.filtering)
	}
	press(m, "esc")
	want("without the filter", paneWorkers, "gpu-1", cpu)
	press(m, "1", "down", "down", "down")
	if m.cursor[paneWorkers] != 1 {
		t.Errorf("the selection is at %d", m.cursor[paneWorkers])
	}
	press(m, "up", "up")
	if m.cursor[paneWorkers] != 0 {
		t.Errorf("the selection is at %d", m.cursor[paneWorkers])
	}
}

func TestTop_LooksIntoWhatIsSelectedAndBack(t *testing.T) {
	t.Parallel()
	m, drilled := topScreen(120, 30)
	for _, keys := range [][]string{{"enter"}, {"2", "down", "enter"}, {"3", "enter"}} {
		m.Update(press(m, keys...)())
		if !strings.Contains(drawn(m), "three") || strings.Contains(drawn(m), "\x1b[2J") {
			t.Errorf("it shows %q", drawn(m))
		}
		press(m, "down")
		if strings.Contains(drawn(m), "one\n") {
			t.Error("it does not scroll")
		}
		press(m, "up", "down", "down", "down", "down", "q")
		if m.opened != nil {
			t.Error("it stays")
		}
	}
	if got := strings.Join(*drilled, " "); got != "0gpu-1 1target 'edge-1' 2swampd/scheduler" {
		t.Errorf("it has looked into %q", got)
	}
	press(m, "/", "n", "o", "b", "o", "d", "y", "enter")
	if cmd := press(m, "enter"); cmd != nil {
		t.Error("it looks into nothing")
	}
}

func TestTop_GoesOnThroughErrorsPausesAndQuits(t *testing.T) {
	t.Parallel()
	m := &topModel{width: 100, height: 30}
	if got := drawn(m); !strings.Contains(got, "asking") {
		t.Errorf("at first it says %q", got)
	}
	if _, cmd := m.Update(topFrame{err: errors.New("nobody is there")}); cmd == nil || !strings.Contains(drawn(m), "nobody is there") {
		t.Errorf("without an orchestrator it says %q, and asks again: %t", drawn(m), cmd != nil)
	}
	press(m, "down", "enter", "tab", "s")
	m.Update(topFrame{result: topShown(testTime, 0)})
	m.Update(topFrame{err: errors.New("it went away")})
	if got := drawn(m); !strings.Contains(got, "NO ANSWER: it went away") || !strings.Contains(got, "gpu-1") {
		t.Errorf("after a loss it says %q", got)
	}
	press(m, "p")
	m.Update(topFrame{result: topShown(testTime, 5)})
	if got := drawn(m); !strings.Contains(got, "PAUSED") || messages.GoTime(m.frame.GetAt()) != testTime(0) {
		t.Errorf("paused it shows %q", got)
	}
	for _, key := range []string{"q", "ctrl+c"} {
		if cmd := press(m, key); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s does not end it", key)
		}
	}
	press(m, "/")
	if cmd := press(m, "ctrl+c"); cmd == nil {
		t.Error("ctrl+c does not end it while a filter is typed")
	}
	m = &topModel{width: 100, height: 30, fetch: func() tea.Msg { return topTick{} }}
	if _, cmd := m.Update(topTick{}); cmd == nil {
		t.Error("it does not ask again")
	}
}

func TestActorTop_WithoutATerminalPrintsOneFrameOrRefuses(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(topShown(testTime, 0), nil))
	tests := []struct {
		args string
		code int
		out  string
		err  string
	}{
		{"", ExitUsage, "", "actor top needs a terminal: --once prints one frame"},
		{"--once", ExitOK, "lists/actor_top.txt", ""},
		{"--once --output json", ExitOK, "lists/actor_top.json", ""},
	}
	for _, tt := range tests {
		h := newTestHost(t, append([]string{"actor", "top"}, strings.Fields(tt.args)...)...)
		s.use(h)
		if code := h.run(t, Swamp); code != tt.code || !strings.Contains(h.err.String(), tt.err) {
			t.Errorf("%q: exit %d: %s", tt.args, code, h.err.String())
		}
		if tt.out != "" {
			golden(t, tt.out, h.out.String())
		}
	}
	h := newTestHost(t, "actor", "top", "--output", "json")
	s.use(h)
	h.Terminal = func() (int, int, bool) { return 80, 24, true }
	if code := h.run(t, Swamp); code != ExitUsage || !strings.Contains(h.err.String(), "--output") {
		t.Errorf("JSON on the whole screen: exit %d: %s", code, h.err.String())
	}
}

func TestTopDetail_IsWhatTheCommandsSay(t *testing.T) {
	t.Parallel()
	all := shown()
	s := newScript(t, func(_ context.Context, verb messages.Verb, _ proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
		return all[verb], nil
	})
	h := newTestHost(t)
	s.use(h)
	h.Terminal = func() (int, int, bool) { return 60, 20, true }
	a := &app{host: h.Host, format: choiceValue{"log", []string{"log", "json"}}}
	a.client.server = s.url
	a.client.token.secret = testToken
	c, err := a.newClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	for pane, want := range map[topPane]string{paneWorkers: "stands in line", paneQueue: "fit/a", paneActors: "swampd/fleet/gpu-1"} {
		name := "labels gpu=true"
		d := a.topDetail(t.Context(), c, pane, name)
		if text := strings.Join(d.lines, "\n"); !strings.Contains(text, want) || d.title != name {
			t.Errorf("list %d: %q", pane, text)
		}
	}
	all[messages.VerbWhy] = nil
	s.answer = func(context.Context, messages.Verb, proto.Message, func(*messages.RunEvent)) (proto.Message, error) {
		return nil, messages.Faultf(messages.CodeNotFound, "no worker x")
	}
	if d := a.topDetail(t.Context(), c, paneWorkers, "x"); !strings.Contains(strings.Join(d.lines, " "), "no worker x") {
		t.Errorf("of what is not there it says %q", d.lines)
	}
	if got := wrapped("one two three four", 9); strings.Join(got, "|") != "one two|three|four" && strings.Join(got, "|") != "one two|three four" {
		t.Errorf("wrapped as %q", got)
	}
}
