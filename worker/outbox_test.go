package worker

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestSink_ATalkativeStepIsCutWithAMark(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			out.(*sink).left = 10
			for range 5 {
				if err := out.Write(Stdout, []byte("seven77")); err != nil {
					t.Error(err)
				}
			}
			return Outcome{Status: OutcomeSucceeded}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.expect("d1/1 stdout seven77sev")
		f := c.read()
		if out := f.GetEvent().GetOutput(); string(out.GetData()) != outputMark || out.GetStream() != string(Stderr) {
			t.Errorf("the mark is %v", out)
		}
		r := c.expect("d1/1 succeeded").GetResponse().GetWorkerDispatch()
		if r.GetFinalOffset() != uint32(10+len(outputMark)) {
			t.Errorf("final offset %d", r.GetFinalOffset())
		}
	})
}

func TestSink_MasksTheTokenInBothStreams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			_ = out.Write(Stdout, []byte("out gpu-1.01234567"))
			_ = out.Write(Stderr, []byte("err 0123456789abcdef "))
			<-time.After(time.Minute) // a pause within the token
			_ = out.Write(Stdout, []byte("89abcdef\n"))
			_ = out.Write(Stderr, []byte("0123456"))
			return Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"token": "gpu-1.0123456789abcdef"}}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		var out, err strings.Builder
		for {
			f := c.read()
			if r := f.GetResponse().GetWorkerDispatch(); r != nil {
				if r.GetOutputs()[0].GetValue() != "gpu-1.***" {
					t.Errorf("outputs %v", r.GetOutputs())
				}
				break
			}
			chunk := f.GetEvent().GetOutput()
			if chunk.GetStream() == string(Stdout) {
				out.Write(chunk.GetData())
			} else {
				err.Write(chunk.GetData())
			}
			c.ack("d1", chunk.GetOffset()+uint32(len(chunk.GetData())), false)
		}
		if out.String() != "out gpu-1.***\n" || err.String() != "err *** 0123456" {
			t.Errorf("stdout %q, stderr %q", out.String(), err.String())
		}
	})
}

func TestSink_PartialLinesArriveSoon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, _ Task, started func(), out Output) Outcome {
			started()
			for {
				select {
				case <-time.After(time.Second):
					_ = out.Write(Stdout, []byte("."))
				case <-ctx.Done():
					return Outcome{Status: OutcomeCancelled}
				}
			}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		begun := time.Now()
		for i := range 20 {
			c.expect("d1/1 stdout .")
			if late := time.Since(begun) - time.Duration(i+1)*time.Second; late != gatherTime {
				t.Errorf("dot %d comes %v after it was written", i, late)
			}
			c.ack("d1", uint32(i+1), false)
		}
	})
}
