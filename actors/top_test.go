package actors_test

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestActorTop_IsEverythingAtAGlance(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		f.Worker("cpu-1")
		done := f.Submit(single)
		w.NextDispatch().Succeed()
		done.Wait()
		run := f.Submit(fan)
		w.NextDispatch().Accept()
		target := f.Submit(oneStep("target: nobody"))
		f.Advance(4 * time.Second)
		again := f.Submit(oneStep("target: nobody"))
		f.Settle()
		got, err := f.Ask(messages.VerbActorTop, &messages.ActorTopParams{Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		top := got.(*messages.ActorTopResult)
		if top.GetSlotsTotal() != 3 || top.GetSlotsFree() != 2 || top.GetWaiting() != 2 || top.GetRunsLive() != 3 {
			t.Errorf("%d of %d slots are free, %d wait, %d runs live", top.GetSlotsFree(), top.GetSlotsTotal(), top.GetWaiting(), top.GetRunsLive())
		}
		if c := top.GetClasses(); len(c) != 1 || c[0].GetRequirement() != "target 'nobody'" || c[0].GetWaiting() != 2 || c[0].GetOldestMs() != 4000 || c[0].GetWhy() == "" {
			t.Errorf("classes %v", c)
		}
		if w := top.GetWorkers(); len(w) != 2 || w[0].GetName() != "gpu-1" || w[0].GetTaken() != 1 || w[0].GetStatus() != "busy" {
			t.Errorf("workers %v", w)
		}
		if len(top.GetActors()) != 5 || len(top.GetActorsByKind()) < 6 || top.GetCommits() == 0 || len(top.GetStepsEnded()) != 1 {
			t.Errorf("actors %v, kinds %v, commits %v, steps %v", top.GetActors(), top.GetActorsByKind(), top.GetCommits(), top.GetStepsEnded())
		}
		for _, r := range []*testkit.Run{run, target, again} {
			r.Kill()
		}
		f.Advance(2 * time.Minute)
	}, testkit.WithQueueTimeout(time.Hour))
}
