package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// BenchmarkDispatch is what one step costs the whole orchestrator, on a journal in memory and with workers that answer at
// once: while nobody watches, while one actor is watched that does nothing, one that has a part in each step, and all.
func BenchmarkDispatch(b *testing.B) {
	const steps = 100
	var yaml strings.Builder
	yaml.WriteString("name: wide\nlabels: {gpu: \"true\"}\njobs:\n  - name: main\n    steps:\n")
	for i := range steps {
		fmt.Fprintf(&yaml, "      - {name: s%d, run: work}\n", i)
	}
	for _, watched := range []string{"", "tokens/gpu-1", "fleet/gpu-1", "run"} {
		name := "watched=" + strings.ReplaceAll(watched, "/", "_")
		b.Run(name, func(b *testing.B) {
			f := testkit.Start(b)
			f.Worker("gpu-1", gpu(), testkit.Capacity(steps), testkit.AutoRun())
			if watched != "" {
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				f.Go(func() {
					defer close(ended)
					_, _ = f.Do(ctx, messages.VerbActorWatch, &messages.ActorWatchParams{Subject: watched}, func(*messages.Event) error { return nil })
				})
				defer func() { cancel(); <-ended }()
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if status := f.Submit(yaml.String()).Wait(); status != messages.RunSucceeded {
					b.Fatal(status)
				}
				n += steps
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/step")
		})
	}
}
