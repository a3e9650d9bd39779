package actors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestFrames_AResultThatComesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(chain)
		d := w.NextDispatch().Output("words\n")
		d.Succeed("a=1")
		d.Repeat()
		d.WaitDone()
		next := w.NextDispatch()
		d.Repeat() // long after its end
		f.Advance(time.Minute)
		d.Repeat() // its actor has left
		next.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		d.Repeat() // its run has ended
		f.Settle()
		if diff := cmp.Diff([]string{"words"}, run.Lines("first")); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestFrames_WhatComesForALeaseThatIsNotKnownIsAcknowledged(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1")
		for i, body := range []*messages.Frame{
			{Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "succeeded"})}},
			{Body: &messages.Frame_Error{Error: &messages.Error{Code: string(messages.CodeWorkerBusy)}}},
			{Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Output{Output: &messages.OutputChunk{Data: []byte("x")}}}}},
			{Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}}}},
		} {
			body.Id = fmt.Sprintf("never.0.%d/1", i)
			ack := w.Await(body.GetId())
			w.Send(body)
			if got := <-ack; !got.GetAck().GetDone() {
				t.Errorf("frame %d got %v, want to be told to forget it", i, got)
			}
		}
		f.Settle()
	})
}

func TestFrames_AResultThatOvertakesOutputWaitsForIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		result := func() *messages.Frame {
			return &messages.Frame{Id: d.Lease, Body: &messages.Frame_Response{Response: messages.NewResponse(
				messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "succeeded", FinalOffset: 10})}}
		}
		chunk := func(offset uint32, text string) *messages.Frame {
			return &messages.Frame{Id: d.Lease, Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Output{
				Output: &messages.OutputChunk{Offset: offset, Stream: "stdout", Data: []byte(text)}}}}}
		}
		w.Send(result())
		w.Send(chunk(5, "five\n")) // a gap before it
		w.Send(chunk(0, "zero\n"))
		w.Send(result())
		f.Advance(time.Second)
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("with output missing the step is %s, want running", got)
		}
		w.Send(chunk(0, "zero\n"))
		w.Send(chunk(5, "five\n"))
		w.Send(chunk(5, "five\n"))
		w.Send(result())
		run.WaitStatus(messages.RunSucceeded)
		if diff := cmp.Diff([]string{"zero", "five"}, run.Lines("only")); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestFrames_OutputArrivesWholeWhateverIsRepeatedAndHoweverOftenTheLinkIsCut(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				random := rand.New(rand.NewPCG(seed, 1))
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				var want []string
				for i := range 30 {
					line := fmt.Sprintf("%d %s", i, strings.Repeat("x", random.IntN(8000)))
					want = append(want, line)
					d.Output(line + "\n")
					switch random.IntN(6) {
					case 0:
						w.Drop()
						f.Advance(time.Duration(random.IntN(5000)) * time.Millisecond)
						w.Reconnect()
					case 1:
						d.Repeat()
					case 2:
						f.Advance(time.Duration(random.IntN(2000)) * time.Millisecond)
					}
				}
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				if diff := cmp.Diff(want, run.Lines("only")); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
				var again []string
				for _, e := range watched(t, run, 0, nil) {
					if e.GetKind() == messages.EventStepOutput {
						again = append(again, e.GetLine())
					}
				}
				if diff := cmp.Diff(want, again); diff != "" {
					t.Errorf("output as it is kept (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFrames_OfAnotherWorkersDispatchChangeNothing(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w, other := f.Worker("gpu-1", gpu()), f.Worker("gpu-2")
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		other.Send(&messages.Frame{Id: d.Lease, Body: &messages.Frame_Response{Response: messages.NewResponse(
			messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "failed", Code: "exit_nonzero", Error: "not mine"})}})
		f.Settle()
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("after a word of another worker the step is %s, want running", got)
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}
