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
	dismissing := sampleWorker(false, messages.IntentNone, messages.HealthOK, 1)
	dismissing.dismissing, dismissing.reason = true, string(messages.CodeTokenRevoked)
	claiming := ok(0)
	claiming.claims = []string{"r.9.1/1"}
	claimingAnew := claiming
	claimingAnew.enrolledVersion = claimingAnew.version
	otherwise := ok(0)
	otherwise.claims = []string{"r.9.1/3", "r.8.1/1"}
	checkCells(t, workerUnder(), []cell[workerState]{
		{
			"an enrollment stands only while its token does", workerFrom("a", nil, 0, timing{}), c["enrolls again"](),
			"worker idle; if token is at 2; send response; owes lease claimLease; owes lease claimLease; owes scheduler workerKnown",
		},
		{
			"what the same instance names goes on, the rest is lost", ok(2), c["enrolls again"](),
			"worker idle; if token is at 2; send worker.goodbye; hang up: superseded; tell lease leaseNamed; tell lease leaseLost; send response; owes lease claimLease; owes scheduler workerKnown",
		},
		{
			"another instance lets the connected one show that it lives", ok(1), c["another instance"](), "probe",
		},
		{"a sign of life refuses the newcomer", asked, c["a sign of life"](), "send error already_connected"},
		{
			"without one the newcomer is admitted, and what the old one ran is lost", asked, c["no sign of life"](),
			"worker idle; if token is at 2; send worker.goodbye; hang up: superseded; tell lease leaseLost; send response; owes lease claimLease; owes lease claimLease; owes scheduler workerKnown",
		},
		{"a third one is refused meanwhile", asked, c["another instance"](), "send error already_connected"},
		{"a token that ended meanwhile refuses it", away, c["refused enrollment"](), "send error token_revoked"},
		{"its socket ends, and its leases hold", ok(2), c["socket ends"](), "worker disconnected; tell lease leaseSocketLost; tell lease leaseSocketLost; arm idle; owes scheduler workerKnown"},
		{"an older socket's end changes nothing", ok(2), c["an old socket ends"](), ""},
		{"a report may mean room", ok(0), c["reports"](), "tell scheduler workerStirred; send response"},
		{"a drain takes it out of the pool", ok(1), c["drains"](), "worker draining; send response; owes scheduler workerKnown"},
		{"a drain on an older socket changes nothing", ok(1), c["an old socket drains"](), ""},
		{
			"a revoked token tells it to go, and what it runs waits for its word", ok(1), c["token revoked"](),
			"worker disconnected; send worker.goodbye; arm dismiss; tell token tokenGoneNoted; arm idle; owes scheduler workerKnown",
		},
		{"with its word what it ran is lost without grace", dismissing, goodbyeHeard{9}, "hang up: token_revoked; tell lease leaseLost"},
		{"without it the leases keep their grace", dismissing, dismissElapsed{}, "hang up: token_revoked; tell lease leaseSocketLost"},
		{"also where its socket ends", dismissing, c["socket ends"](), "hang up: token_revoked; tell lease leaseSocketLost"},
		{"an older socket's enrollment is out of date", ok(1), c["enrolls on an old socket"](), "send error unavailable; hang up: unavailable"},
		{"a step that waits for a claimed lease keeps waiting", claiming, awaitWorker{step: stepAddress("r", "j", "s"), lease: "r.9.1/1", over: true}, "tell step awaitNoted; owes lease claimLease"},
		{"a step that waits for another is told that there is no hope", claiming, awaitWorker{step: stepAddress("r", "j", "s"), lease: "r.7.1/1"}, "tell step workerBack; owes lease claimLease"},
		{"a claim that came to nothing is aborted", claiming, claimSettled{"r.9.1/1", true}, "send worker.abort; owes scheduler releaseSlot"},
		{
			"what is claimed again under another generation keeps its slot, and what is not gives it back", otherwise, c["enrolls again"](),
			"worker idle; if token is at 2; send worker.goodbye; hang up: superseded; send response; owes lease claimLease; owes lease claimLease; owes scheduler releaseSlot; owes scheduler workerKnown",
		},
		{
			"a claim of before the enrollment that was adopted meanwhile is a lease", claimingAnew, leaseHere{"r.9.1/3", 2, &messages.DispatchParams{}},
			"tell lease leaseNamed; send worker.dispatch",
		},
		{"a claim that was adopted is a lease", claiming, leaseHere{"r.9.1/2", 4, &messages.DispatchParams{}}, "send worker.dispatch"},
		{"another token's end changes nothing", ok(1), c["another token expires"](), "tell token tokenGoneNoted"},
		{"a new lease gets its dispatch sent", ok(0), c["lease here"](), "send worker.dispatch"},
		{"a lease of a worker that is away is told so", away, c["lease here"](), "tell lease leaseSocketLost"},
		{"a lease from before the last enrollment is lost", ok(0), c["lease of before"](), "tell lease leaseLost"},
		{"a cancel is passed on", ok(1), c["cancel"](), "send cancel force:false"},
		{"two refusals to start are none yet", ok(1), c["cannot start"](), "send ack 0 done:true"},
		{"the third refusal to start makes it unhealthy", failing, c["cannot start"](), "worker unhealthy; send ack 0 done:true; arm probation; owes scheduler workerKnown"},
		{"busy is no trouble", failing, c["busy"](), "send ack 0 done:true"},
		{"a refusal because it drains is news of the drain", ok(1), c["refuses since it drains"](), "worker draining; send ack 0 done:true; owes scheduler workerKnown"},
		{"it gets another try", sampleWorker(true, messages.IntentNone, messages.HealthUnhealthy, 0), probationElapsed{}, "worker idle; owes scheduler workerKnown"},
		{"a new scheduler is told", ok(0), schedulerStarted{9}, "owes scheduler workerKnown"},
		{"one that is away and idle leaves", away, idleElapsed{}, "tell scheduler workerGone; leave"},
		{"one that is away with a lease stays", sampleWorker(false, messages.IntentNone, messages.HealthOK, 1), idleElapsed{}, "arm idle"},
	})
}

func TestWorker_CellsOfWishes(t *testing.T) {
	t.Parallel()
	c := workerCommands()
	with := func(connected bool, intent messages.WorkerIntent) workerState {
		return sampleWorker(connected, intent, messages.HealthOK, 1)
	}
	idle, own, paused, away := with(true, messages.IntentNone), with(true, messages.IntentDraining), with(true, messages.IntentPaused), with(false, messages.IntentNone)
	gone := with(false, messages.IntentDraining)
	taken := away
	taken.ordered = true
	waited := sampleOrdered(true, true, false)
	waited.waiters = []*answer{newAnswer()}
	leaving, left, unheard := own, gone, sampleOrdered(true, false, false)
	leaving.admitted, leaving.saysDraining, left.admitted, unheard.admitted = true, true, true, true
	kept := sampleResuming(false)
	kept.saysDraining = false
	checkCells(t, workerUnder(), []cell[workerState]{
		{"a drain is durable, then told", idle, c["drain it"](), "worker draining; answer intentIs; send worker.order; arm order; owes scheduler workerKnown"},
		{"one that drains already is drained", own, c["drain it"](), "answer intentIs"},
		{"one that has drained and left is drained", gone, c["drain it"](), "answer intentIs"},
		{"one that is away is not drained", away, c["drain it"](), "answer: conflict"},
		{"an order that is not noted is told again", sampleOrdered(true, false, false), orderElapsed{}, "send worker.order; arm order"},
		{"an order that is noted is not", sampleOrdered(true, true, false), orderElapsed{}, ""},
		{"its word that it drains notes the order", sampleOrdered(true, false, false), c["drains"](), "send response"},
		{"a report from before the order changes nothing", sampleOrdered(true, false, false), c["reports"](), "tell scheduler workerStirred; send response"},
		{"the same instance is told again when it comes back", sampleOrdered(false, false, false), c["enrolls again"](), "worker draining; if token is at 2; send worker.order; arm order; tell lease leaseNamed; tell lease leaseLost; send response; owes lease claimLease; owes scheduler workerKnown"},
		{"another instance is not", sampleOrdered(false, false, false), sampleEnroll("other", 11), "worker idle; if token is at 2; tell lease leaseLost; tell lease leaseLost; send response; owes lease claimLease; owes lease claimLease; owes scheduler workerKnown"},
		{"a drain is taken back once the worker has said so", sampleOrdered(true, true, false), c["resume it"](), "send worker.order; arm order"},
		{"and is told again until then", sampleResuming(false), orderElapsed{}, "send worker.order; arm order"},
		{"its word that it works on ends the drain, for those who wait for it too", waited, c["reports"](), "worker idle; answer: conflict; send response; owes scheduler workerKnown"},
		{"its word that it works on counts with its answer", sampleResuming(false), c["reports"](), "send response"},
		{"its answer after that word", kept, c["order to go on answered"](), "worker idle; answer intentIs; owes scheduler workerKnown"},
		{"another instance takes over meanwhile", sampleResuming(false), sampleEnroll("i2", 9), "worker idle; if token is at 2; answer: conflict; tell lease leaseLost; tell lease leaseLost; send response; owes lease claimLease; owes lease claimLease; owes scheduler workerKnown"},
		{"its answer alone says that it leaves", sampleResuming(false), c["order to go on answered"](), "answer: conflict"},
		{"the answer on an older socket says nothing", sampleResuming(false), c["an old socket answers"](), ""},
		{"it leaves meanwhile", sampleResuming(false), c["socket ends"](), "worker disconnected; tell lease leaseSocketLost; tell lease leaseSocketLost; arm idle; answer: conflict; owes scheduler workerKnown"},
		{"one that drains by itself is not kept", own, c["resume it"](), "answer: conflict"},
		{"a drain of one that is away is taken back at once", sampleOrdered(false, false, false), c["resume it"](), "worker disconnected; answer intentIs; owes scheduler workerKnown"},
		{"and it is told so when it comes back", taken, c["enrolls while it drains"](), "worker draining; if token is at 2; send worker.order; arm order; tell lease leaseNamed; send response; owes lease claimLease; owes scheduler workerKnown"},
		{"whoever waits for its end waits", own, c["await gone"](), ""},
		{"whoever waits for its end is told that it has left", gone, c["await gone"](), "answer intentIs"},
		{"whoever waits for its end is told that it stays", idle, c["await gone"](), "answer: conflict"},
		{"a pause", idle, c["pause it"](), "worker paused; answer intentIs; arm pause; owes scheduler workerKnown"},
		{"one that drains is not paused", own, c["pause it"](), "answer: conflict"},
		{"a pause waits behind a drain", paused, c["drains"](), "worker draining; send response; owes scheduler workerKnown"},
		{"and holds for the next instance", sampleOrdered(false, false, true), sampleEnroll("other", 11), "worker paused; if token is at 2; arm pause; tell lease leaseLost; tell lease leaseLost; send response; owes lease claimLease; owes lease claimLease; owes scheduler workerKnown"},
		{"a resume ends it too", sampleOrdered(true, true, true), c["resume it"](), "worker draining; send worker.order; arm order; owes scheduler workerKnown"},
		{"a dispatch that was not sent to one that leaves is turned away", leaving, c["lease here"](), "tell lease leaseTurnedAway"},
		{"also when it has left", left, c["lease here"](), "tell lease leaseTurnedAway"},
		{"one that was sent is sent again", leaving, leaseHere{"r.0.1/1", 5, &messages.DispatchParams{DispatchId: "r.0.1"}}, "send worker.dispatch"},
		{"one that may have been sent is sent again", own, c["lease here"](), "send worker.dispatch"},
		{"one that has not heard of its drain gets what it may refuse", unheard, c["lease here"](), "send worker.dispatch"},
		{"nobody is there", workerFrom("a", nil, 0, timing{}), c["drain it"](), "answer: not_found"},
	})
}

func TestWorker_APauseBehindADrainEndsWithItsTime(t *testing.T) {
	t.Parallel()
	w, at := sampleOrdered(true, true, true), walkNow()
	if w, _ = stepWorker(w, pauseElapsed{}, at); !w.held {
		t.Fatal("the pause is over before its time")
	}
	at.now = w.until
	if w, _ = stepWorker(w, pauseElapsed{}, at); w.held || w.note != "" || !w.until.IsZero() || w.intent != messages.IntentDraining {
		t.Errorf("after its time: %+v", w)
	}
}

func TestWorker_CountsEachDrainOnceByItsCause(t *testing.T) {
	t.Parallel()
	idle := sampleWorker(true, messages.IntentNone, messages.HealthOK, 2)
	says := func(reason string) workerSays {
		return workerSays{9, "q", &messages.StatusParams{Intent: string(messages.IntentDraining), Reason: reason}}
	}
	enrolls := func(instance, reason string) enrollWorker {
		e := sampleEnroll(instance, 10)
		e.params.Intent, e.params.Reason = string(messages.IntentDraining), reason
		return e
	}
	tests := []struct {
		name string
		from workerState
		cmds []any
		want []string
	}{
		{"a signal, said twice", idle, []any{says("signal"), says("signal")}, []string{"signal", ""}},
		{"a wish, and the worker's word", idle, []any{drainWorker{newAnswer()}, says("drain was asked for"), drainWorker{newAnswer()}}, []string{"drained", "", ""}},
		{"a wish, and a worker that comes back", idle, []any{drainWorker{newAnswer()}, sessionEnded{9}, enrolls("i", "drain was asked for")}, []string{"drained", "", ""}},
		{"one that comes back and drains", idle, []any{sessionEnded{9}, enrolls("i", "max_uptime"), says("max_uptime")}, []string{"", "max_uptime", ""}},
		{"each instance of its own", sampleWorker(false, messages.IntentDraining, messages.HealthOK, 0), []any{enrolls("other", "idle_timeout")}, []string{"idle_timeout"}},
		{"a reason that nobody knows", idle, []any{says("the moon")}, []string{"other"}},
		{"a refusal", idle, []any{leaseOver{lease: "r.0.1/1", refusal: messages.CodeWorkerDraining, text: "no"}, says("signal")}, []string{"other", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := private(tt.from)
			for i, cmd := range tt.cmds {
				var d decision
				if w, d = stepWorker(w, cmd, walkNow()); d.drained != tt.want[i] {
					t.Errorf("%s counts %q, want %q", commandWord(cmd), d.drained, tt.want[i])
				}
			}
		})
	}
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
