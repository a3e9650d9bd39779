package actors_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestSocket_TheSameInstanceOnASecondSocketSupersedesTheFirst(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		is := []testkit.WorkerOption{testkit.WithToken(f.Token("gpu-1")), testkit.Machine("m"), testkit.Instance("i"), gpu()}
		first := f.Worker("gpu-1", is...)
		second := f.Worker("gpu-1", is...)
		if fault := first.WaitClosed(); fault.Code != messages.CodeSuperseded {
			t.Errorf("the first socket was closed with %s, want superseded", fault.Code)
		}
		if diff := cmp.Diff([]string{"superseded"}, first.Goodbyes()); diff != "" {
			t.Errorf("goodbyes (-want +got):\n%s", diff)
		}
		f.Advance(5 * time.Minute) // the late close of the first changes nothing
		if got := f.WorkerNamed("gpu-1"); !got.GetConnected() || !second.Connected() {
			t.Error("the worker is disconnected")
		}
		run := f.Submit(single)
		second.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestSocket_ASecondSocketTakesWhatIsInFlightWithIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Output("one\n")
		f.Settle()
		w.Reconnect() // the old socket still looks alive
		d.Output("two\n").Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if diff := cmp.Diff([]string{"one", "two"}, run.Lines("only")); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got := f.Executions(run, "only"); got != 1 {
			t.Errorf("it was executed %d times, want once", got)
		}
	})
}

func TestSocket_AnotherInstanceOfAMachineThatAnswersIsToldToWait(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		first := f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		run := f.Submit(single)
		d := first.NextDispatch().Accept()
		_, err := f.Enroll("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		if codeOf(err) != messages.CodeAlreadyConnected || codeOf(err).Permanent() {
			t.Errorf("the second instance: %v, want the transient already_connected", err)
		}
		f.Settle()
		if !first.Connected() {
			t.Error("the first was disturbed")
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestSocket_AnotherInstanceOfAMachineThatIsSilentTakesOver(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		first := f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		run := f.Submit(single)
		first.NextDispatch().Accept()
		f.Settle()
		first.HalfOpen()
		second := f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		if sinceStart() != 3*time.Second {
			t.Errorf("it was let in after %s, want after a ping of 3s", sinceStart())
		}
		run.WaitEvent(messages.EventStepWorkerLost)
		second.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		f.Advance(time.Minute)
		if !second.Connected() || !f.WorkerNamed("gpu-1").GetConnected() {
			t.Error("the second was disturbed by the end of the first")
		}
	}, testkit.WithoutExecutionCheck())
}

func TestSocket_OfTwoNewInstancesOnlyOneIsLetIn(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		first := f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"))
		first.HalfOpen()
		codes := make(chan messages.Code, 2)
		for range 2 {
			go func() {
				_, err := f.Enroll("gpu-1", testkit.WithToken(token), testkit.Machine("m"))
				codes <- codeOf(err)
			}()
		}
		got := map[messages.Code]int{<-codes: 1}
		got[<-codes]++
		if diff := cmp.Diff(map[messages.Code]int{"": 1, messages.CodeAlreadyConnected: 1}, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
}

func TestSocket_NothingIsTakenBeforeTheEnrollmentAndNoSecondOne(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		s := f.Socket()
		ask := func(id string, verb messages.Verb, params *messages.StatusParams) *messages.Frame {
			s.Send(&messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(verb, params)}})
			got, err := s.Receive()
			if err != nil {
				t.Fatalf("receive: %v", err)
			}
			return got
		}
		if got := ask("1", messages.VerbWorkerStatus, &messages.StatusParams{}); got.GetError().GetCode() != string(messages.CodeOutOfOrder) {
			t.Errorf("a status before the enrollment got %v, want out_of_order", got)
		}
		w := f.Worker("gpu-1")
		if got := w.Ask(messages.VerbWorkerEnroll, &messages.EnrollParams{}); got.GetError().GetCode() != string(messages.CodeOutOfOrder) {
			t.Errorf("a second enrollment got %v, want out_of_order", got)
		}
		if got := w.Ask(messages.VerbRunList, &messages.RunListParams{}); got.GetError().GetCode() != string(messages.CodeUnauthorized) {
			t.Errorf("a client's verb from a worker got %v, want unauthorized", got)
		}
	})
}

func TestSocket_AWorkerThatDrainsAndLeavesIsNotMissed(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(chain)
		d := w.NextDispatch().Accept()
		w.SayDraining("signal")
		d.Succeed()
		run.WaitEvent(messages.EventStepQueued, "step=second")
		d.WaitDone()
		w.NoDispatch()
		w.Drop()
		f.Settle()
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerDisconnected) {
			t.Errorf("the worker is %s, want disconnected", got)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}
