package workflow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/swampd/swampd/messages"
)

// wide is a workflow of n parallel steps as people write them.
func wide(n int) []byte {
	var b strings.Builder
	b.WriteString("name: wide\njobs:\n  - name: main\n    steps:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - name: step-%d\n        labels: {gpu: true}\n        run: |\n          echo hello\n          echo %d\n", i, i)
	}
	return []byte(b.String())
}

func benchmarkParse(b *testing.B, src []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := Parse("f", src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse_OneStep(b *testing.B) {
	benchmarkParse(b, []byte("name: x\njobs:\n  - name: main\n    steps:\n      - name: a\n        run: echo hello\n"))
}

func BenchmarkParse_9000Steps(b *testing.B) { benchmarkParse(b, wide(9000)) }

func BenchmarkParse_10000StepsInBrackets(b *testing.B) {
	var s strings.Builder
	s.WriteString("{name: x, jobs: [{name: main, steps: [")
	for i := range 10_000 {
		fmt.Fprintf(&s, "{name: s%d, run: echo %d, dependsOn: [s%d]},", i+1, i, i)
	}
	s.WriteString("{name: s0, run: echo}]}]}")
	benchmarkParse(b, []byte(s.String()))
}

// BenchmarkProgress_Parallel is the DAG's part of one step of a run of many parallel steps.
func BenchmarkProgress_Parallel(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := &Plan{Steps: make([]Step, n), Jobs: []Job{{Steps: numbers(n)}}}
			b.ReportAllocs()
			for b.Loop() {
				g := NewProgress(p)
				for _, i := range g.Begin().Ready {
					g.End(i, messages.StepSucceeded)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
		})
	}
}

// BenchmarkParse_10000StepsWithExpressions has two paths a step, and one expression that CEL reads.
func BenchmarkParse_10000StepsWithExpressions(b *testing.B) {
	var s strings.Builder
	s.WriteString("{name: x, inputs: {n: {default: 1}}, jobs: [{name: m, steps: [{name: s0, run: a},")
	for i := range 10_000 {
		fmt.Fprintf(&s, "{name: s%d, run: a, dependsOn: s%d, env: {A: \"${{steps.s%d.outputs.a}} ${{inputs.n}}\"}},", i+1, i, i)
	}
	s.WriteString("{name: last, run: a, env: {B: \"${{ inputs.n == 1 ? 'a' : 'b' }}\"}}]}]}")
	b.ReportAllocs()
	b.SetBytes(int64(s.Len()))
	for b.Loop() {
		if _, err := parse("f", []byte(s.String()), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlan_Resolve is the work of one instance.
func BenchmarkPlan_Resolve(b *testing.B) {
	p := eachPlan(b, "s", "[1]")
	scope := scopeOf(b, p)
	scope.Item = int64(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Resolve(1, scope); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExpression is the compilation of one expression that is no path.
func BenchmarkExpression(b *testing.B) {
	p, err := parse("f", []byte(exprPlan("plain")), nil)
	if err != nil {
		b.Fatal(err)
	}
	at := site{level: inStep, job: 2, step: len(p.Steps) - 1, item: "it"}
	shared := codes{}
	b.ReportAllocs()
	for b.Loop() {
		x := compiler{site: &at, plan: p, env: shared.environment}
		if _, faults := x.compile("inputs.n == 1 ? 'a' : 'b'"); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
