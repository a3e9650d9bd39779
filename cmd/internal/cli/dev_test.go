package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/workflow"
)

func TestDevFleet(t *testing.T) {
	t.Parallel()
	const head = "name: w\njobs:\n  - name: j\n    steps:\n"
	here := runtime.GOOS + "/" + runtime.GOARCH
	tests := []struct {
		name  string
		steps []string // keys of each step
		n     int
		want  []string
		bad   string // in the error
	}{
		{"no placement, no class", []string{""}, 0, nil, ""},
		{"plain workers up to the number", []string{""}, 2, []string{"dev-1", "dev-2"}, ""},
		{"one for each class", []string{"labels: {gpu: true}", "labels: {gpu: true}", "labels: {tier: a}"}, 1, []string{"dev-1 (gpu=true)", "dev-2 (tier=a)"}, ""},
		{"more than there are classes", []string{"labels: {gpu: true}"}, 3, []string{"dev-1 (gpu=true)", "dev-2", "dev-3"}, ""},
		{"a target is a name", []string{"target: box-7", "labels: {a: b}"}, 0, []string{"box-7", "dev-1 (a=b)"}, ""},
		{"a target that is called like ours", []string{"labels: {a: b}", "target: dev-1"}, 0, []string{"dev-2 (a=b)", "dev-1"}, ""},
		{"one worker for several classes of one target", []string{"{target: box, labels: {a: b}}", "{target: box, labels: {c: d}}"}, 0, []string{"box (a=b,c=d)"}, ""},
		{"a target that cannot be both", []string{"{target: box, labels: {a: b}}", "{target: box, labels: {a: c}}"}, 0, nil, "target 'box' is wanted with a=b and with a=c"},
		{"this platform", []string{"platform: " + here}, 0, []string{"dev-1"}, ""},
		{"another platform", []string{"platform: plan9/mips"}, 0, nil, "step j/s0 wants a worker matching platform 'plan9/mips': one on this machine is " + here + " instead of plan9/mips"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			b.WriteString(head)
			for i, keys := range tt.steps {
				keys = strings.TrimSuffix(strings.TrimPrefix(keys, "{target"), "}}")
				if keys != tt.steps[i] { // a step with several keys
					target, labels, _ := strings.Cut("target"+keys, ", labels: ")
					keys = target + "\n        labels: " + labels + "}"
				}
				b.WriteString("      - name: s" + string(rune('0'+i)) + "\n        run: true\n")
				if keys != "" {
					b.WriteString("        " + keys + "\n")
				}
			}
			plan, err := workflow.Parse("w.yaml", []byte(b.String()))
			if err != nil {
				t.Fatal(err)
			}
			fleet, err := devFleet("w.yaml", plan, tt.n)
			if tt.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tt.bad) || exitCode(err) != ExitUsage {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range fleet {
				got = append(got, w.describe())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// newDevHost is a host whose workers are this test binary.
func newDevHost(t *testing.T, args ...string) (h *testHost, temp string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("its steps are Unix scripts")
	}
	temp = t.TempDir()
	h = newTestHost(t, append([]string{"dev"}, args...)...)
	h.env[envProgram], h.env["TMPDIR"], h.env["PATH"] = string(Swamp), temp, os.Getenv("PATH")
	return h, temp
}

func TestDev_RunsAFileOnAFleetOfItsOwn(t *testing.T) {
	t.Parallel()
	h, temp := newDevHost(t, workflowFile(t, placed))
	if code := h.run(t, Swamp); code != ExitOK {
		t.Fatalf("exit %d: %s%s", code, h.out.String(), h.err.String())
	}
	for _, want := range []string{
		"export SWAMP_SERVER=http://127.0.0.1:", "waiting for a worker matching labels tier=x", "main/only | hello from dev-1\n", "run succeeded in ",
	} {
		if !strings.Contains(h.out.String(), want) {
			t.Errorf("no %q in\n%s", want, h.out.String())
		}
	}
	if !strings.Contains(h.err.String(), "worker dev-1 (tier=x) enrolled") {
		t.Errorf("standard error: %s", h.err.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestDev_KeepsWhatFailed(t *testing.T) {
	t.Parallel()
	h, temp := newDevHost(t, workflowFile(t, strings.Replace(placed, "echo ", "exit 7; echo ", 1)))
	if code := h.run(t, Swamp); code != ExitFailed {
		t.Fatalf("exit %d: %s%s", code, h.out.String(), h.err.String())
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 1 || !strings.Contains(h.err.String(), filepath.Join(temp, left[0].Name())+" is kept") {
		t.Errorf("left behind %v, %v: %s", left, err, h.err.String())
	}
	if !strings.Contains(h.out.String(), "exit status 7") {
		t.Errorf("printed %s", h.out.String())
	}
}

func TestDev_AnInterruptCancelsTheRunAndCleansUp(t *testing.T) {
	t.Parallel()
	h, temp := newDevHost(t, workflowFile(t, slow), "--output", "json")
	code := h.start(t.Context(), Swamp)
	h.out.waitFor(t, `"line":"up"`)
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitInterrupted || !strings.Contains(h.out.String(), "run_cancelled") {
		t.Errorf("exit %d: %s%s", got, h.out.String(), h.err.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestDev_WithoutAFileAFleetUntilAnInterrupt(t *testing.T) {
	t.Parallel()
	h, _ := newDevHost(t, "--workers", "2", "--data-dir", filepath.Join(t.TempDir(), "kept"))
	code := h.start(t.Context(), Swamp)
	h.err.waitFor(t, "worker dev-1 enrolled")
	h.err.waitFor(t, "worker dev-2 enrolled")
	other := newTestHost(t, "worker", "list")
	for _, word := range strings.Fields(h.out.String()) {
		if name, value, ok := strings.Cut(word, "="); ok {
			other.env[name] = value
		}
	}
	if got := other.run(t, Swamp); got != ExitOK || !strings.Contains(other.out.String(), "dev-2") {
		t.Errorf("worker list with what was printed exits %d: %s%s", got, other.out.String(), other.err.String())
	}
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitOK {
		t.Errorf("exit %d: %s", got, h.err.String())
	}
}
