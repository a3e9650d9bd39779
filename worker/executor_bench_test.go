//go:build linux || darwin

package worker

import (
	"os/exec"
	"testing"
	"time"
)

// BenchmarkShell_NoOp is the whole of the shortest step: scratch folder, keeper, shell, sweep. start-ms is the part
// until the script runs.
func BenchmarkShell_NoOp(b *testing.B) {
	e := newTestExecutor(b)
	b.ReportAllocs()
	var starting time.Duration
	for b.Loop() {
		task := shellTask(":")
		from := time.Now()
		o := e.Run(b.Context(), task, func() { starting += time.Since(from) }, newRecorder())
		if o.Status != OutcomeSucceeded {
			b.Fatalf("outcome %+v", o)
		}
	}
	b.ReportMetric(starting.Seconds()*1000/float64(b.N), "start-ms")
}

// BenchmarkShell_Floor is what the system alone takes for a shell that does nothing.
func BenchmarkShell_Floor(b *testing.B) {
	shell, err := shellCommand(nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := exec.Command(shell[0], "-c", ":").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShell_NoOpParallel(b *testing.B) {
	e := newTestExecutor(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if o := e.Run(b.Context(), shellTask(":"), func() {}, newRecorder()); o.Status != OutcomeSucceeded {
				b.Errorf("outcome %+v", o)
			}
		}
	})
}

// BenchmarkShell_Output is the way of a step's bytes from its pipe to the Output.
func BenchmarkShell_Output(b *testing.B) {
	e := newTestExecutor(b)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		out := &counter{}
		o := e.Run(b.Context(), shellTask("head -c 67108864 /dev/zero"), func() {}, out)
		if o.Status != OutcomeSucceeded || out.bytes != size {
			b.Fatalf("outcome %+v, %d bytes", o, out.bytes)
		}
	}
}

// BenchmarkShell_Lines is one short line after the other, each in a write of its own.
func BenchmarkShell_Lines(b *testing.B) {
	e := newTestExecutor(b)
	const lines = 200000
	for b.Loop() {
		out := &counter{}
		o := e.Run(b.Context(), shellTask("for ((i=0; i<200000; i++)); do echo a line of output that is 54 bytes long $((i+1000000000)); done"), func() {}, out)
		if o.Status != OutcomeSucceeded || out.bytes < lines {
			b.Fatalf("outcome %+v, %d bytes", o, out.bytes)
		}
	}
	b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkModel_NoOp(b *testing.B) {
	e := newTestExecutor(b)
	b.ReportAllocs()
	task := Task{Model: NoopModel}
	out := newRecorder()
	for b.Loop() {
		if o := e.Run(b.Context(), task, func() {}, out); o.Status != OutcomeSucceeded {
			b.Fatalf("outcome %+v", o)
		}
	}
}

type counter struct{ bytes int }

func (c *counter) Write(_ Stream, p []byte) error {
	c.bytes += len(p)
	return nil
}
