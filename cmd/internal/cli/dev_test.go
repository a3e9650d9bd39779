package cli

import (
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
