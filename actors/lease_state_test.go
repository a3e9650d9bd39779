package actors

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

func TestLease_Cells(t *testing.T) {
	t.Parallel()
	c := leaseCommands()
	active := sampleLease(messages.LeaseActive, "", "none", false)
	wrote := sampleLease(messages.LeaseActive, "", "none", true)
	buffered := sampleLease(messages.LeaseActive, "", "waiting", false)
	logged := sampleLease(messages.LeaseActive, "", "logged", false)
	loggedMore := logged
	loggedMore.buffer, loggedMore.received = []*messages.OutputChunk{{Offset: 5, Data: []byte("world")}}, 10
	fenced := sampleLease(messages.LeaseFenced, "killed", "none", false)
	completed := sampleLease(messages.LeaseCompleted, "", "none", false)
	restarted := sampleLease(messages.LeaseExpired, "", "logged", false)
	restarted.outcome = &messages.Outcome{Status: outcomeRestart}
	nobodys := leaseState{dispatchID: "x", state: messages.LeaseExpired, stepKnows: true, slotKnows: true, unknown: "x/1"}
	claimed, adopted := restarted, restarted
	claimed.claim, claimed.slotKnows = &claimLease{lease: "r.0.1/1", worker: "a", instance: "i"}, true
	adopted.adopted, adopted.stepKnows, adopted.slotKnows = true, true, true
	wroteAnew := wrote
	wroteAnew.accepted = false
	still := active
	still.lostAt = walkNow().now
	born := active
	born.accepted, born.lostAt = false, time.Time{}
	known := completed
	known.stepKnows, known.slotKnows = true, true
	const over = "; owes step leaseEnded; owes scheduler releaseSlot"
	checkCells(t, leaseUnder(), []cell[leaseState]{
		{"a dispatch that is not accepted is asked for again", born, unheard{}, "owes worker leaseHere"},
		{"an acceptance is no commit", born, c["accepted"](), "arm backstop"},
		{"the first output waits for the end", active, c["output from 0"](), "arm flush"},
		{"output that is known is acknowledged again", logged, c["output from 0"](), "send ack 5 done:false"},
		{"output with a gap is not taken", active, c["output with a gap"](), ""},
		{"much output goes to a log at once", buffered, c["much output"](), "log of r.0.1, 2 chunks; send ack 65542 done:false"},
		{"output to a log gathers what has come", logged, c["output from 5"](), "again"},
		{"output that has waited goes to a log", buffered, flushElapsed{}, "log of r.0.1, 1 chunks; send ack 5 done:false"},
		{"a result waits for the output before it", active, c["result before all"](), ""},
		{
			"a result ends it, with its output beside it", buffered, c["result succeeded"](),
			"output inline; lease completed; tell worker leaseOver" + over,
		},
		{
			"a result ends it, with the rest of its output in the log", loggedMore, c["result failed"](),
			"log of r.0.1, 1 chunks; lease completed; tell worker leaseOver; closeLog" + over,
		},
		{"a refusal ends it", active, c["refused"](), "lease refused; tell worker leaseOver" + over},
		{"one that was not sent is refused", born, leaseTurnedAway{}, "lease refused; tell worker leaseOver" + over},
		{"one that was accepted was sent", active, leaseTurnedAway{}, ""},
		{"one that has ended stays so", completed, leaseTurnedAway{}, "owes step leaseEnded; owes scheduler releaseSlot"},
		{"another worker's word is not heard", active, c["another's frame"](), "send ack 0 done:true"},
		{"a lost socket starts the grace", born, leaseSocketLost{}, "arm grace; owes worker leaseHere"},
		{"a second loss does not start it anew", active, leaseSocketLost{}, ""},
		{"only being named stops it", active, leaseNamed{7, 3}, "send ack 0 done:false"},
		{"its worker came back without it before it was accepted", born, leaseLost{"x", true}, "lease refused; tell worker leaseOver" + over},
		{"the grace is over, and the orchestrator had stood still", still, graceElapsed{}, "arm grace"},
		{"a claim after a restart is the step's to decide", restarted, claimLease{lease: "r.0.1/1", worker: "a", instance: "i"}, "owes step leaseEnded; owes scheduler releaseSlot"},
		{"another instance's claim is void", restarted, claimLease{lease: "r.0.1/1", worker: "a", instance: "other"}, "tell worker claimSettled" + over},
		{"a claim that its step does not adopt is void", claimed, leaseNoted{lease: "r.0.1/1"}, "tell worker claimSettled; leave"},
		{"a claim of a lease that nothing is known of is void, and nothing stays of it", nobodys, claimLease{lease: "x/1", worker: "a", instance: "i"}, "tell worker claimSettled; leave"},
		{"one that was adopted leads on", adopted, claimLease{lease: "r.0.1/1", worker: "a", instance: "i"}, "tell lease claimLease"},
		{"what a worker says before that is decided is not heard", restarted, c["result succeeded"](), "owes step leaseEnded; owes scheduler releaseSlot"},
		{"the grace is over", active, graceElapsed{}, "lease expired; tell worker leaseOver" + over},
		{"the grace is over after a write", wrote, graceElapsed{}, "lease failed; tell worker leaseOver" + over},
		{"a grace that was stopped is ignored", born, graceElapsed{}, "owes worker leaseHere"},
		{"its worker came back without it", active, leaseLost{reason: "x"}, "lease expired; tell worker leaseOver" + over},
		{"a cancel waits for the worker", active, cancelLease{by: "me"}, "lease active; owes worker cancelDispatch"},
		{"a kill decides, and the slot stays taken", active, cancelLease{by: "me", force: true}, "lease fenced; owes worker cancelDispatch; owes step leaseEnded"},
		{"a stuck worker does not hold a step", active, backstopElapsed{}, "lease fenced; owes worker cancelDispatch; owes step leaseEnded"},
		{"what comes of a fenced one frees its slot", fenced, c["result succeeded"](), "lease completed; tell worker leaseOver" + over},
		{"a fenced one takes its worker's last word whatever output is missing", fenced, c["result before all"](), "lease completed; tell worker leaseOver" + over},
		{"a fenced one is lost without another outcome", fenced, leaseLost{reason: "x"}, "lease expired; tell worker leaseOver" + over},
		{"news after the end is acknowledged", completed, c["result failed"](), "tell worker leaseOver" + over},
		{"it leaves once step and scheduler know", known, c["slot noted"](), "leave"},
		{"a first write is marked before it is answered", active, c["mark writes"](), "lease active; answer marked"},
		{"a later write is no commit", wrote, c["mark writes"](), "answer marked"},
		{"what is fenced writes no more", fenced, c["mark writes"](), "answer: ended; owes worker cancelDispatch; owes step leaseEnded"},
		{"what has ended writes no more", completed, c["mark writes"](), "answer: ended; owes step leaseEnded; owes scheduler releaseSlot"},
		{"a question that started an ended one leaves nothing", known, c["mark writes"](), "answer: ended; leave"},
		{"what nobody knows of writes nothing", nobodys, c["mark writes"](), "answer: ended; leave"},
		{"a mark that found no space is none", active, c["refused mark"](), "answer: no_space"},
		{"one that has written is not refused, but lost", wrote, c["refused"](), "lease failed; tell worker leaseOver" + over},
		{"one that has written is lost, also where it is not known to have begun", wroteAnew, leaseLost{"x", true}, "lease failed; tell worker leaseOver" + over},
		{"a new scheduler is told of its slot", active, schedulerStarted{3}, "owes scheduler holdSlot"},
		{"a new scheduler needs not be told that it is free", known, schedulerStarted{3}, "leave"},
	})
}

func TestLease_Refused_AnAdoptionThatWasNotAcceptedIsNobodysLoss(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		generation        uint32
		accepted, excused bool
		wantStatus        string
	}{
		"the first lease of a dispatch is refused":         {1, false, false, outcomeRefused},
		"an adoption that was not accepted":                {2, false, true, outcomeLost},
		"an adoption that was accepted, and lost after it": {2, true, false, outcomeLost},
	} {
		l := sampleLease(messages.LeaseActive, "", "none", false)
		l.generation, l.accepted = tt.generation, tt.accepted
		l, _ = l.refused(&messages.Error{Code: string(messages.CodeEnded)}, walkNow())
		if l.outcome.GetStatus() != tt.wantStatus || l.outcome.GetExcused() != tt.excused {
			t.Errorf("%s: %v", name, l.outcome)
		}
	}
}

func TestLease_OutcomeOf_AWordThatIsNotKnownIsAFailure(t *testing.T) {
	t.Parallel()
	tests := []struct{ status, code, want string }{
		{"succeeded", "", outcomeSucceeded},
		{"failed", "exit_nonzero", outcomeFailed},
		{"cancelled", "", outcomeCancelled},
		{"timeout", "", outcomeTimeout},
		{"lost", "", outcomeLost},
		{"failed", "worker_lost", outcomeLost},
		{"refused", "", outcomeFailed},
		{"restart", "", outcomeFailed},
		{"", "", outcomeFailed},
		{"SUCCEEDED", "", outcomeFailed},
	}
	for _, tt := range tests {
		if got := outcomeOf(&messages.DispatchResult{Status: tt.status, Code: tt.code}); got != tt.want {
			t.Errorf("status %q with code %q is %s, want %s", tt.status, tt.code, got, tt.want)
		}
	}
}
