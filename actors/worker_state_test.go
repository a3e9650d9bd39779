package actors

import (
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestWorker_Cells(t *testing.T) {
	t.Parallel()
	c := workerCommands()
	ok := func(leases int) workerState {
		return sampleWorker(true, messages.IntentNone, messages.HealthOK, leases)
	}
	asked := ok(1)
	n := sampleEnroll("other", 77)
	asked.newcomer = &n
	failing := ok(1)
	failing.cannotStart = cannotStartLimit - 1
	away := sampleWorker(false, messages.IntentNone, messages.HealthOK, 0)
	checkCells(t, workerUnder(), []cell[workerState]{
		{
			"an enrollment stands only while its token does", workerFrom("a", nil, 0, timing{}), c["enrolls again"](),
			"worker idle; if token is at 2; send response; owes scheduler workerKnown",
		},
		{
			"what the same instance names goes on, the rest is lost", ok(2), c["enrolls again"](),
			"worker idle; if token is at 2; send worker.goodbye; hang up: superseded; tell lease leaseNamed; tell lease leaseLost; send response; owes scheduler workerKnown",
		},
		{
			"another instance lets the connected one show that it lives", ok(1), c["another instance"](), "probe",
		},
		{"a sign of life refuses the newcomer", asked, c["a sign of life"](), "send error already_connected"},
		{
			"without one the newcomer is admitted, and what the old one ran is lost", asked, c["no sign of life"](),
			"worker idle; if token is at 2; send worker.goodbye; hang up: superseded; tell lease leaseLost; send response; owes scheduler workerKnown",
		},
		{"a third one is refused meanwhile", asked, c["another instance"](), "send error already_connected"},
		{"a token that ended meanwhile refuses it", away, c["refused enrollment"](), "send error token_revoked"},
		{"its socket ends, and its leases hold", ok(2), c["socket ends"](), "worker disconnected; tell lease leaseSocketLost; tell lease leaseSocketLost; arm idle; owes scheduler workerKnown"},
		{"an older socket's end changes nothing", ok(2), c["an old socket ends"](), ""},
		{"a report may mean room", ok(0), c["reports"](), "tell scheduler workerStirred; send response"},
		{"a drain takes it out of the pool", ok(1), c["drains"](), "worker draining; send response; owes scheduler workerKnown"},
		{"a drain on an older socket changes nothing", ok(1), c["an old socket drains"](), ""},
		{
			"a revoked token ends it and what it runs, without grace", ok(1), c["token revoked"](),
			"worker disconnected; send worker.goodbye; hang up: token_revoked; tell lease leaseLost; tell token tokenGoneNoted; arm idle; owes scheduler workerKnown",
		},
		{"another token's end changes nothing", ok(1), c["another token expires"](), "tell token tokenGoneNoted"},
		{"a new lease gets its dispatch sent", ok(0), c["lease here"](), "send worker.dispatch"},
		{"a lease of a worker that is away is told so", away, c["lease here"](), "tell lease leaseSocketLost"},
		{"a lease from before the last enrollment is lost", ok(0), c["lease of before"](), "tell lease leaseLost"},
		{"a cancel is passed on", ok(1), c["cancel"](), "send cancel force:false"},
		{"two refusals to start are none yet", ok(1), c["cannot start"](), ""},
		{"the third refusal to start makes it unhealthy", failing, c["cannot start"](), "worker unhealthy; arm probation; owes scheduler workerKnown"},
		{"busy is no trouble", failing, c["busy"](), ""},
		{"a refusal because it drains is news of the drain", ok(1), c["refuses since it drains"](), "worker draining; owes scheduler workerKnown"},
		{"it gets another try", sampleWorker(true, messages.IntentNone, messages.HealthUnhealthy, 0), probationElapsed{}, "worker idle; owes scheduler workerKnown"},
		{"a new scheduler is told", ok(0), schedulerStarted{9}, "owes scheduler workerKnown"},
		{"one that is away and idle leaves", away, idleElapsed{}, "tell scheduler workerGone; leave"},
		{"one that is away with a lease stays", sampleWorker(false, messages.IntentNone, messages.HealthOK, 1), idleElapsed{}, "arm idle"},
	})
}

func TestWorker_NumbersItsDispatchesAboveAllBefore(t *testing.T) {
	t.Parallel()
	w := sampleWorker(true, messages.IntentNone, messages.HealthOK, 0)
	w.seqBase = 40
	last := uint32(40)
	for i, at := range []uint64{3, 1, 1, 1, 60} { // the journal's sequence after restarts of the actor
		if i == 2 {
			w.seq, w.leases = 0, nil
		}
		m := walkNow()
		m.sequence = at + uint64(i*10)
		w, _ = stepWorker(w, leaseHere{lease: leaseID("r", uint32(i)), version: 5, dispatch: &messages.DispatchParams{}}, m)
		seq := w.leases[leaseID("r", uint32(i))]
		if seq <= last {
			t.Errorf("dispatch %d has number %d, the one before %d", i, seq, last)
		}
		last = seq
	}
}
