//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logs is what run logs prints, byte by byte.
func (f *fleet) logs(args ...string) []byte {
	f.t.Helper()
	f.files++
	path := f.path(fmt.Sprintf("logs-%d", f.files))
	file, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	p := f.launch("swamp", startOptions{env: f.clientEnv(), stdout: file}, append([]string{"run", "logs"}, args...)...)
	p.exits(120*time.Second, 0)
	data, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	return data
}

// followInto is follow with the events in a file.
func (f *fleet) followInto(path, yaml string) *process {
	f.t.Helper()
	file, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { file.Close() })
	return f.launch("swamp", startOptions{env: f.clientEnv(), stdout: file}, "workflow", "run", f.write(yaml), "--output", "json")
}

// same wants two texts to be equal, and says where they are not.
func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	around := func(b []byte) []byte { return b[max(0, min(at-20, len(b))):min(at+40, len(b))] }
	t.Errorf("%s: %d bytes, want %d; the first difference is at %d: %q, want %q", what, len(got), len(want), at, around(got), around(want))
}

func TestOutput_IsCompleteAndInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	lines := 100_000
	if v := os.Getenv("E2E_LINES"); v != "" {
		var err error
		if lines, err = strconv.Atoi(v); err != nil {
			t.Fatalf("E2E_LINES: %v", err)
		}
	}
	var numbers strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&numbers, "%d\n", i)
	}
	long := strings.Repeat("0123456789", 500_000)
	for _, tt := range []struct {
		name, script string
		// want is what the step printed. run logs ends the last line, if the step did not.
		want string
	}{
		{"a line of 5 MB", `printf '0123456789%.0s' $(seq 500000); echo`, long + "\n"},
		{"5 MB that end without a newline", `printf '0123456789%.0s' $(seq 500000)`, long},
		{"a last line without a newline", `printf 'one\ntwo'`, "one\ntwo"},
		{"empty lines and spaces", `printf '\n\n  a  \n\n\tb\n'`, "\n\n  a  \n\n\tb\n"},
		{"returns and escapes", `printf 'a\rb\r\n\033[31mred\033[0m\n'`, "a\rb\r\n\x1b[31mred\x1b[0m\n"},
		{"characters of four bytes", `for i in $(seq 20000); do printf '🦆é'; done; echo`, strings.Repeat("🦆é", 20_000) + "\n"},
		{"many lines", fmt.Sprintf("seq %d", lines), numbers.String()},
		{"2 MB and an exit at once", `seq -f %09g 200000; exit 0`, func() string {
			var b strings.Builder
			for i := 1; i <= 200_000; i++ {
				fmt.Fprintf(&b, "%09d\n", i)
			}
			return b.String()
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.files++
			path := f.path(fmt.Sprintf("events-%d", f.files))
			f.followInto(path, flow(step("print", tt.script, "labels: {pool: a}"))).exits(120*time.Second, 0)
			events, err := readEvents(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := dense(events); err != nil {
				t.Error(err)
			}
			same(t, "workflow run", []byte(output(events, "print", "stdout")), []byte(tt.want))
			same(t, "run logs", f.logs(events[0].RunID), []byte(strings.TrimSuffix(tt.want, "\n")+"\n"))
			// Everything that a step printed precedes the event of its end.
			if n := len(events); n < 4 || events[n-3].Kind != "step_succeeded" {
				t.Errorf("the last events are %v", kinds(events[max(0, n-4):]))
			}
		})
	}
}

func TestOutput_BinaryIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	id := f.detach(flow(step("print", `head -c 300000 /dev/urandom | tee "$HOME/random"`, "labels: {pool: a}")))
	f.ends(id, 60*time.Second, "succeeded")
	raw, err := os.ReadFile(f.path("home", "random"))
	if err != nil {
		t.Fatal(err)
	}
	// In JSON, and in what the command prints, a byte that is no UTF-8 becomes U+FFFD: nothing else is lost.
	want := strings.ToValidUTF8(string(bytes.TrimSuffix(raw, []byte("\n"))), "\uFFFD") + "\n"
	got := f.logs(id)
	squeeze := func(s string) string {
		for strings.Contains(s, "\uFFFD\uFFFD") {
			s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
		}
		return s
	}
	same(t, "run logs", []byte(squeeze(string(got))), []byte(squeeze(want)))
}

func TestOutput_BothStreamsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	path := f.path("events")
	f.followInto(path, flow(step("print", `for i in $(seq 5000); do echo "out $i"; echo "err $i" >&2; done`, "labels: {pool: a}"))).exits(120*time.Second, 0)
	events, err := readEvents(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"stdout", "stderr"} {
		var want strings.Builder
		for i := 1; i <= 5000; i++ {
			fmt.Fprintf(&want, "%s %d\n", stream[3:], i)
		}
		same(t, stream, []byte(output(events, "print", stream)), []byte(want.String()))
	}
	if got := bytes.Count(f.logs(events[0].RunID), []byte("\n")); got != 10_000 {
		t.Errorf("run logs prints %d lines, not 10000", got)
	}
}

func TestOutput_ALineWithoutItsEndShowsWithinASecondOrSo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	run := f.follow(flow(step("ask", `printf 'are you there? '; sleep 600`, "labels: {pool: a}")))
	got := run.event(10*time.Second, "step_output", "ask")
	if got.Line != "are you there? " || !got.Partial {
		t.Errorf("the event is %+v", got)
	}
	f.swamp("run", "cancel", got.RunID)
	run.exits(20*time.Second, 1)
}

func TestOutput_AClientThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	deaf := f.launch("swamp", startOptions{env: f.clientEnv(), stdout: writer},
		"workflow", "run", f.write(flow(step("print", "seq -f %099g 300000; echo done >> $HOME/done", "labels: {pool: a}"))), "--output", "json")
	writer.Close()
	eventually(t, 90*time.Second, "the step comes to its end although nobody reads", func() error {
		if len(f.lines(f.path("home", "done"))) == 0 {
			return fmt.Errorf("not yet; the client says %v", deaf.stderr())
		}
		return nil
	})
	var runs list[struct{ RunID string }]
	f.ask("run.list", `{}`, &runs)
	f.ends(runs.Items[0].RunID, 60*time.Second, "succeeded")
	f.ends(f.detach(flow(step("other", "true", "labels: {pool: a}"))), 20*time.Second, "succeeded")
	if rss := statusNumber(t, f.d.pid, "VmRSS"); rss > 600<<10 && slow == 1 {
		t.Errorf("swampd holds %d MiB for a client that does not read", rss>>10)
	}

	// It has lost nothing when it reads on.
	sum := sha256.New()
	read := make(chan error, 1)
	var text bytes.Buffer
	go func() { // ends with the client
		_, err := text.ReadFrom(reader)
		read <- err
	}()
	deaf.exits(120*time.Second, 0)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	events, err := parseEvents(strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := dense(events); err != nil {
		t.Error(err)
	}
	want := sha256.New()
	for i := 1; i <= 300_000; i++ {
		fmt.Fprintf(want, "%099d\n", i)
	}
	sum.Write([]byte(output(events, "print", "stdout")))
	if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Errorf("what it read at last is not what the step printed: %d events", len(events))
	}
}

func TestOutput_AStoppedOrchestratorLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	path := f.path("events")
	run := f.followInto(path, flow(step("print", "sleep 0.5; seq -f %099g 100000", "labels: {pool: a}")))
	ids := list[struct{ RunID string }]{}
	eventually(t, 10*time.Second, "the run is there", func() error {
		if err := f.call("run.list", `{}`, &ids); err != nil {
			return err
		}
		if len(ids.Items) == 0 {
			return fmt.Errorf("no run yet")
		}
		return nil
	})
	f.stepIs(ids.Items[0].RunID, "print", "running", 10*time.Second)
	f.d.signal(syscall.SIGSTOP)
	holds(t, 2*time.Second, "the client waits", func() error {
		if !run.alive() {
			return fmt.Errorf("it ended with %d: %v", run.code, run.stderr())
		}
		return nil
	})
	f.d.signal(syscall.SIGCONT)
	run.exits(90*time.Second, 0)
	events, err := readEvents(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := dense(events); err != nil {
		t.Error(err)
	}
	var want strings.Builder
	for i := 1; i <= 100_000; i++ {
		fmt.Fprintf(&want, "%099d\n", i)
	}
	same(t, "workflow run", []byte(output(events, "print", "stdout")), []byte(want.String()))
}
