package actors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// runTest drives a run's machine by hand.
type runTest struct {
	t  *testing.T
	s  *runState
	at moment
}

// chain is a run of one job whose second step needs its first.
func chain(t *testing.T) *runTest {
	t.Helper()
	return &runTest{t: t, s: &runState{id: "r"}, at: walkNow()}
}

// takes gives the run a batch, and compares what it decides.
func (r *runTest) takes(want string, batch ...any) decision {
	r.t.Helper()
	r.at.now = r.at.now.Add(time.Second)
	var d decision
	r.s, d = stepRun(r.s, batch, r.at)
	var list []string
	for _, w := range strings.Split(want, "; ") {
		if w != "" {
			list = append(list, w)
		}
	}
	if diff := cmp.Diff(list, outline(d), cmpopts.EquateEmpty()); diff != "" {
		r.t.Errorf("%T decides (-want +got):\n%s", batch[0], diff)
	}
	return d
}

func (r *runTest) submit() submitRun {
	return submitRun{file: "f", sourceDigest: "d", submitDigest: "d", plan: samplePlan(), answer: newAnswer()}
}

func (r *runTest) end(ordinal int, status messages.StepStatus) stepEnded {
	return stepEnded{r.s.stepAddress(ordinal), uint32(ordinal), status, "e", "c"}
}

func granted(ordinal int) slotsReserved {
	return slotsReserved{question: 900, grants: []grant{{ordinal: ordinal, ok: true, choice: choice{ticket: 7, worker: "a", version: 2, epoch: 5}}}}
}

const (
	asks     = "tell scheduler reserveSlots; arm reserve"
	bornIdle = "pending waiting; step queued"
)

func TestRun_IsAcceptedAndDispatchedInOneCommitWhereASlotIsFree(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	r.takes("step running; lease active; run running; if worker is at 2; if scheduler is at 5; "+
		"event run_started; event job_started; event step_started; event step_dispatched; "+
		"bear step; tell lease ensureLease; answer submitted", granted(0))
}

func TestRun_WithoutASlotItsStepsWait(t *testing.T) {
	t.Parallel()
	for name, no := range map[string]any{
		"the scheduler has none":               slotsReserved{question: 900, grants: []grant{{ordinal: 0, why: "waiting for something"}}},
		"the scheduler does not answer":        reserveElapsed{900},
		"the scheduler that was asked is gone": schedulerStarted{6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := chain(t)
			r.takes(asks, r.submit())
			want := bornIdle + "; run running; event run_started; event job_started; event step_started; event step_queued; bear step; answer submitted"
			if _, ok := no.(schedulerStarted); ok {
				want = strings.Replace(want, "bear step", "tell children schedulerStarted; bear step", 1)
			}
			r.takes(want, no)
		})
	}
}

func TestRun_ALateAnswerGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; bear step; answer submitted", reserveElapsed{900})
	d := r.takes("tell scheduler releaseSlot", granted(0))
	if got := d.effects[0].(tell).msg.(releaseSlot); got.ticket != 7 || got.dispatchID != "r.0.1" {
		t.Errorf("it gives back %+v, and would free what is not its own", got)
	}
}

func TestRun_AChoiceThatNoLongerHoldsIsDoneWithout(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	_, d := stepRun(r.s, []any{granted(0)}, r.at)
	got := r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; "+
		"tell scheduler releaseSlot; bear step; answer submitted", commitRefused{cmd: []any{granted(0)}, effects: d.effects})
	for _, e := range got.effects {
		if told, ok := e.(tell); ok {
			if _, lease := told.msg.(ensureLease); lease {
				t.Error("a lease is borne that was never written")
			}
		}
	}
}

func TestRun_WithoutSpaceItIsNotAcceptedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	_, d := stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("tell scheduler releaseSlot; answer: no_space; leave",
		commitRefused{cmd: []any{granted(0)}, noSpace: true, effects: d.effects})
	if diff := cmp.Diff(&runState{id: "r", questions: 900}, r.s, cmp.AllowUnexported(runState{})); diff != "" {
		t.Errorf("what is left of it:\n%s", diff)
	}
}

func TestRun_ThatGoesOnWaitsForSpace(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("tell step endNoted; "+asks, r.end(0, messages.StepSucceeded))
	no := slotsReserved{question: 901, grants: []grant{{ordinal: 1, why: "w"}}}
	_, d := stepRun(r.s, []any{no}, r.at)
	r.takes("arm space", commitRefused{cmd: []any{no}, noSpace: true, effects: d.effects})
	r.takes("", struct{}{})
	r.takes(asks, spaceElapsed{})
	r.takes(bornIdle+"; event step_started; event step_queued; bear step", reserveElapsed{902})
}

func TestRun_EndsAsItsStepsEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		first  messages.StepStatus
		second messages.StepStatus // empty: it is skipped
		want   string
	}{
		{"all succeed", messages.StepSucceeded, messages.StepSucceeded, "run succeeded; event job_succeeded; event run_succeeded"},
		{"the last fails", messages.StepSucceeded, messages.StepFailed, "run failed; event job_failed; event run_failed"},
		{"the first fails, and what needs it is skipped", messages.StepFailed, "", "step skipped; run failed; event step_skipped; event job_failed; event run_failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t)
			r.takes(asks, r.submit())
			stepRun(r.s, []any{granted(0)}, r.at)
			if tt.second == "" {
				r.takes(tt.want+"; tell step endNoted; leave; leave", r.end(0, tt.first))
				return
			}
			r.takes("tell step endNoted; "+asks, r.end(0, tt.first))
			stepRun(r.s, []any{slotsReserved{question: 901, grants: []grant{{ordinal: 1, ok: true, choice: choice{worker: "a"}}}}}, r.at)
			r.takes(tt.want+"; tell step endNoted; leave; leave", r.end(1, tt.second))
		})
	}
}

func TestRun_IsCancelledOnceEveryStepHasEnded(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("step cancelled; run running; event step_cancelled; answer cancelAccepted; tell children cancelStep; arm cancel",
		cancelRun{by: "me", answer: newAnswer()})
	r.takes("answer cancelAccepted", cancelRun{by: "me", answer: newAnswer()})
	r.takes("tell children cancelStep; arm cancel", cancelElapsed{})
	r.takes("run cancelled; event job_cancelled; event run_cancelled; tell step endNoted; leave; leave", r.end(0, messages.StepCancelled))
	r.takes("answer cancelAccepted; leave", cancelRun{by: "me", answer: newAnswer()})
	r.takes("tell step endNoted; leave", r.end(0, messages.StepCancelled))
}

func TestRun_TheSameSubmissionAgainIsTheSameRun(t *testing.T) {
	t.Parallel()
	r := chain(t)
	other := r.submit()
	other.submitDigest = "another"
	r.takes(asks, r.submit())
	r.takes("", r.submit(), other) // both are answered by the commit
	r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; bear step; "+
		"answer submitted; answer submitted; answer: run_id_conflict", reserveElapsed{900})
	r.takes("answer submitted", r.submit())
	r.takes("answer: run_id_conflict", other)
}

func TestRun_ThatDoesNotExistSaysSo(t *testing.T) {
	t.Parallel()
	chain(t).takes("answer: not_found; leave", cancelRun{by: "me", answer: newAnswer()})
}

func TestRun_GathersWhatHasArrivedIntoOneCommit(t *testing.T) {
	t.Parallel()
	r := chain(t)
	plan := &workflow.Plan{Name: "fan", Jobs: []workflow.Job{{Name: "j"}}}
	for i := range 300 {
		plan.Jobs[0].Steps = append(plan.Jobs[0].Steps, i)
		plan.Steps = append(plan.Steps, workflow.Step{Name: fmt.Sprint(i), Model: "m", Method: "n"})
	}
	c := r.submit()
	c.plan = plan
	stepRun(r.s, []any{c}, r.at)
	_, d := stepRun(r.s, []any{reserveElapsed{900}}, r.at)
	if steps := births(d); steps != birthsPerCommit || !slices.Contains(outline(d), "again") {
		t.Errorf("the first commit bears %d steps, want %d, and the rest behind it", steps, birthsPerCommit)
	}
	stepRun(r.s, []any{struct{}{}}, r.at)
	_, d = stepRun(r.s, []any{reserveElapsed{901}}, r.at)
	if steps := births(d); steps != 300-birthsPerCommit {
		t.Errorf("the second commit bears %d steps", steps)
	}
	var ends []any
	for i := range 300 {
		ends = append(ends, r.end(i, messages.StepSucceeded))
	}
	_, d = stepRun(r.s, ends, r.at)
	if r.s.status != messages.RunSucceeded || len(d.writes) != 1 {
		t.Errorf("after all have ended it is %s with %d writes, want one", r.s.status, len(d.writes))
	}
}

func births(d decision) int {
	n := 0
	for _, w := range d.writes {
		if w.kind == kindStep && w.replaces == 0 {
			n++
		}
	}
	return n
}

func TestRun_AnswersForStepsThatHaveLeft(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	stepRun(r.s, []any{r.end(0, messages.StepSucceeded)}, r.at)
	r.takes("tell lease leaseNoted", leaseEnded{lease: "r.0.1/1", worker: "a", outcome: &messages.Outcome{}})
	r.takes("tell scheduler releaseSlot", assignStep{"r.0.q1", "r.0.2", choice{ticket: 3}})
	r.takes("tell scheduler withdrawStep", queueDeadline{"r.0.q1"})
	for _, lease := range []string{"", "r", "r.9.1/1", "r.x.1/1", "other.0.1/1", "r.0"} {
		stepRun(r.s, []any{leaseEnded{lease: lease, outcome: &messages.Outcome{}}}, r.at)
	}
}
