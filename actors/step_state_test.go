package actors

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

func TestStep_Cells(t *testing.T) {
	t.Parallel()
	queued, running := sampleStep(messages.StepQueued, "", false), sampleStep(messages.StepRunning, "", false)
	aged := sampleStep(messages.StepRunning, "", true) // it has lost two workers
	cancelled := sampleStep(messages.StepRunning, "cancelled", false)
	proud := running
	proud.def = &samplePlan().Steps[0]
	proud.def.OnWorkerLost = messages.LostFail
	chosen := assignStep{"r.0.q1", "r.0.1", choice{ticket: 4, worker: "a", instance: "i", version: 2, epoch: 5}}
	end := func(lease, status string, wrote bool) leaseEnded {
		return leaseEnded{lease: lease, worker: "a", hasWrites: wrote, outcome: &messages.Outcome{Status: status, Code: "c", Error: "e"}}
	}
	awaiting, wrote := running, running
	awaiting.awaiting, awaiting.awaitNoted = true, true
	wrote.awaiting, wrote.wrote = true, true
	claimed := sampleClaimedEnd("r.0.1/1", false)
	checkCells(t, stepUnder(), []cell[stepState]{
		{
			"a choice is one commit, on condition that worker and scheduler are still those that made it", queued, chosen,
			"pending dispatched; step running; lease active; if worker is at 2; if scheduler is at 5; event step_dispatched; " +
				"tell lease ensureLease; owes lease ensureLease",
		},
		{"the same choice again changes nothing", running, chosen, ""},
		{"a choice for another wait gives the slot back", queued, assignStep{queueID: "r.0.q7", dispatchID: "r.0.1"}, "tell scheduler releaseSlot"},
		{"a choice for a step that has ended gives the slot back", sampleStep(messages.StepCancelled, "", false), chosen, "tell scheduler releaseSlot; owes run stepEnded; owes scheduler withdrawStep"},
		{"a choice that no longer held gives the slot back, and the step offers itself anew", queued, commitRefused{cmd: chosen}, "tell scheduler releaseSlot; owes scheduler offerStep"},
		{"its deadline ends a wait", queued, queueDeadline{"r.0.q1"}, "pending timed_out; step failed; event step_failed; owes run stepEnded; owes scheduler withdrawStep"},
		{"a deadline that comes when it runs is taken back", running, queueDeadline{"r.0.q1"}, "tell scheduler withdrawStep"},
		{"a cancel ends a wait", queued, cancelStep{by: "me", at: sampleTime(9)}, "pending cancelled; step cancelled; event step_cancelled; owes run stepEnded; owes scheduler withdrawStep"},
		{"a cancel is passed on while it runs", running, cancelStep{by: "me", at: sampleTime(9)}, "step running; owes lease cancelLease"},
		{"a second cancel changes nothing", cancelled, cancelStep{by: "you", at: sampleTime(9)}, "owes lease cancelLease"},
		{"a kill goes beyond a cancel", cancelled, cancelStep{by: "you", force: true, at: sampleTime(9)}, "step running; owes lease cancelLease"},
		{"a success", running, end("r.0.1/1", outcomeSucceeded, true), "step succeeded; event step_succeeded; tell lease leaseNoted; owes run stepEnded"},
		{"a success that came before the cancel counts", cancelled, end("r.0.1/1", outcomeSucceeded, false), "step succeeded; event step_succeeded; tell lease leaseNoted; owes run stepEnded"},
		{"a failure after a cancel is a cancel", cancelled, end("r.0.1/1", outcomeFailed, false), "step cancelled; event step_cancelled; tell lease leaseNoted; owes run stepEnded"},
		{"a failure", running, end("r.0.1/1", outcomeFailed, false), "step failed; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"a timeout", running, end("r.0.1/1", outcomeTimeout, false), "step failed; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"a refusal is a new wait", running, end("r.0.1/1", outcomeRefused, false), "pending waiting; step queued; event step_queued; tell lease leaseNoted; owes scheduler offerStep"},
		{"a loss without a write is a new wait", running, end("r.0.1/1", outcomeLost, false), "pending waiting; step queued; event step_worker_lost; event step_queued; tell lease leaseNoted; owes scheduler offerStep"},
		{"a loss after a write fails it", running, end("r.0.1/1", outcomeLost, true), "step failed; event step_worker_lost; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"a loss fails it if it says so", proud, end("r.0.1/1", outcomeLost, false), "step failed; event step_worker_lost; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"what a drain gave back is a new wait, and no loss", aged, end("r.0.3/1", outcomeHandedBack, false), "pending waiting; step queued; event step_queued; tell lease leaseNoted; owes scheduler offerStep"},
		{"what a drain gave back after a write is cancelled", running, end("r.0.1/1", outcomeHandedBack, true), "step cancelled; event step_cancelled; tell lease leaseNoted; owes run stepEnded"},
		{"what a drain gave back is cancelled if it says so", proud, end("r.0.1/1", outcomeHandedBack, false), "step cancelled; event step_cancelled; tell lease leaseNoted; owes run stepEnded"},
		{"a drain that cancels", running, end("r.0.1/1", outcomeCancelled, false), "step cancelled; event step_cancelled; tell lease leaseNoted; owes run stepEnded"},
		{"the third loss fails it", aged, end("r.0.3/1", outcomeLost, false), "step failed; event step_worker_lost; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"a refusal is no loss", aged, end("r.0.3/1", outcomeRefused, false), "pending waiting; step queued; event step_queued; tell lease leaseNoted; owes scheduler offerStep"},
		{"the end of an older lease is noted and changes nothing", aged, end("r.0.1/1", outcomeFailed, false), "tell lease leaseNoted"},
		{"a restart lets it wait for its worker", running, end("r.0.1/1", outcomeRestart, false), "arm adoption; owes worker awaitWorker"},
		{"a restart lets it wait for its worker also after a write", running, end("r.0.1/1", outcomeRestart, true), "arm adoption; owes worker awaitWorker"},
		{"its worker claims it, and it is adopted", running, claimed, "step running; lease active; if worker is at 7; tell lease ensureLease; tell lease leaseNoted; owes lease ensureLease"},
		{"a worker that was waited for claims it", awaiting, claimed, "step running; lease active; if worker is at 7; tell lease ensureLease; tell lease leaseNoted; owes lease ensureLease"},
		{"the grace is over, and the worker's actor is asked", awaiting, adoptionElapsed{}, "owes worker awaitWorker"},
		{"there is no hope, and it waits in line again", awaiting, workerBack{}, "pending waiting; step queued; event step_worker_lost; event step_queued; tell lease leaseNoted; owes scheduler offerStep"},
		{"there is no hope, and it had written", wrote, workerBack{}, "step failed; event step_worker_lost; event step_failed; tell lease leaseNoted; owes run stepEnded"},
		{"a restart ends a step that was to be cancelled", cancelled, end("r.0.1/1", outcomeRestart, false), "step cancelled; event step_cancelled; tell lease leaseNoted; owes run stepEnded"},
		{"it leaves once its run knows the end", sampleStep(messages.StepFailed, "", false), endNoted{}, "leave"},
	})
}

func TestStep_ADeadlineSpansItsWaits(t *testing.T) {
	t.Parallel()
	s := sampleStep(messages.StepQueued, "", false)
	s.waited = 25 * time.Second // in earlier waits, of a minute
	if got, want := s.offer().deadline, s.queuedAt.Add(35*time.Second); !got.Equal(want) {
		t.Errorf("its deadline is %s, want %s", got, want)
	}
	s.limit = 0
	if !s.offer().deadline.IsZero() {
		t.Error("without a limit it has a deadline")
	}
}

func TestStep_KeepsItsPlaceInLine(t *testing.T) {
	t.Parallel()
	s := sampleStep(messages.StepRunning, "", false)
	s, _ = stepStep(s, leaseEnded{lease: "r.0.1/1", worker: "a", hasWrites: false, outcome: &messages.Outcome{Status: outcomeRefused}}, walkNow())
	if o := s.offer(); o.place != 7 || !o.parked || o.queueID != "r.0.q2" || o.dispatchID != "r.0.2" {
		t.Errorf("after a refusal it offers %+v", o)
	}
	s, _ = stepStep(s, assignStep{"r.0.q2", "r.0.2", choice{worker: "b"}}, walkNow())
	s, _ = stepStep(s, leaseEnded{lease: "r.0.2/1", worker: "b", hasWrites: false, outcome: &messages.Outcome{Status: outcomeLost}}, walkNow())
	if o := s.offer(); o.place != 7 || o.parked {
		t.Errorf("after a loss it offers %+v", o)
	}
}

func TestSeconds_AreAsFewDigitsAsSayIt(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "60s", 90 * time.Minute: "5400s", 1500 * time.Millisecond: "1.5s", 2 * time.Second: "2s", time.Millisecond: "0.001s", 0: "0s",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}
