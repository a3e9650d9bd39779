package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func trace(t *testing.T, f *testkit.Fleet, run, step string) *messages.ActorTraceResult {
	t.Helper()
	got, err := f.Ask(messages.VerbActorTrace, &messages.ActorTraceParams{RunId: run, Step: step})
	if err != nil {
		t.Fatalf("trace %s %s: %v", run, step, err)
	}
	return got.(*messages.ActorTraceResult)
}

// The whole story: it waits, is refused, runs, is lost, runs again and succeeds.
func TestActorTrace_TellsTheStoryWithTheTimeInEachPlace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(chain)
		f.Advance(2 * time.Second)
		one := f.Worker("gpu-1", gpu())
		one.NextDispatch().RefuseBusy()
		f.Settle()
		two := f.Worker("gpu-2", gpu())
		d := two.NextDispatch().Accept()
		f.Advance(3 * time.Second)
		live := trace(t, f, run.ID, "first")
		if n := len(live.GetSpans()); live.GetSpans()[n-1].GetPlace() != "worker" || live.GetSpans()[n-1].GetTookMs() != 3000 || live.GetSpans()[n-1].GetEndedAt() != nil {
			t.Errorf("while it runs its last span is %v", live.GetSpans()[n-1])
		}
		d.Fail(messages.CodeExitNonzero, "exit status 3")
		run.Wait()
		f.Advance(time.Minute)
		got := trace(t, f, run.ID, "")
		golden(t, "trace/chain.json", shape(t, got, run.ID, "RUN", messages.TraceID(run.ID), "TRACE"))
		step := trace(t, f, run.ID, "main/first")
		for _, m := range step.GetMoves() {
			if m.Step != nil && m.GetStep() != "first" {
				t.Errorf("the story of one step has %v", m)
			}
		}
		if want := messages.SpanID(run.ID + ".0.2"); !strings.Contains(shape(t, step), want) {
			t.Errorf("no span has the id %s that the step was given", want)
		}
	})
}

func TestActorTrace_ALostWorkerIsInTheStory(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		w := f.Worker("gpu-1", gpu())
		w.NextDispatch().Accept()
		f.Advance(2 * time.Second)
		w.Drop()
		f.Advance(time.Second)
		var moves []string
		for _, m := range trace(t, f, run.ID, "").GetMoves() {
			moves = append(moves, m.GetFrom()+" > "+m.GetTo()+": "+m.GetText())
		}
		if want := "worker gpu-1 > leases: is disconnected, with 59s left to come back"; moves[len(moves)-1] != want {
			t.Errorf("the last move is %q, want %q", moves[len(moves)-1], want)
		}
		f.Advance(90 * time.Second)
		f.Worker("gpu-2", gpu()).NextDispatch().Succeed()
		run.Wait()
		got := trace(t, f, run.ID, "")
		var workers, lost int
		for _, s := range got.GetSpans() {
			if s.GetPlace() == "worker" {
				workers++
			}
			if s.GetStatus() == "lost" {
				lost++
			}
		}
		if workers != 2 || lost != 1 {
			t.Errorf("%d spans are with workers, %d of them lost: %v", workers, lost, got.GetSpans())
		}
	})
}

func TestActorTrace_OfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		for _, p := range []*messages.ActorTraceParams{{RunId: "nobody"}, {RunId: run.ID, Step: "nothing"}} {
			if _, err := f.Ask(messages.VerbActorTrace, p); codeOf(err) != messages.CodeNotFound {
				t.Errorf("%v: %v", p, err)
			}
		}
		run.Cancel()
		run.Wait()
	})
}
