package actors

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// What a step puts out stands in the record of its lease, in its own and in an event. Above inlineBody it is a body of its own,
// which these name: it is written before the commit that ends the lease, and goes with the run. In memory the outputs stand
// beside that name; only the journal is spared them.

// keepOutputs writes large outputs, and sets where they are, of leases that are about to be written. Nobody else has such an
// outcome before the commit.
func (sys *System) keepOutputs(writes []write) error {
	for _, w := range writes {
		l, ok := w.body.(*messages.LeaseRecord)
		if !ok {
			continue
		}
		o := l.GetOutcome()
		if o.GetOutputsBody() != nil || outputsSize(o.GetOutputs()) <= inlineBody {
			continue
		}
		ref, err := sys.writeOutputs(o.GetOutputs())
		if err != nil {
			return fmt.Errorf("write the outputs of %s: %w", w.id, err)
		}
		o.OutputsBody = ref
	}
	return nil
}

func (sys *System) writeOutputs(outputs []*messages.KeyValue) (*messages.BodyRef, error) {
	body, err := proto.Marshal(&messages.Outputs{Outputs: outputs})
	if err != nil {
		return nil, err
	}
	blob, err := sys.journal.NewBlob()
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(body)
	ref := &messages.BodyRef{Size: uint64(len(body)), Digest: digest[:]}
	if _, err = blob.Write(body); err == nil {
		ref.Key, err = blob.Commit()
	}
	if err != nil {
		if derr := blob.Discard(); derr != nil {
			sys.log.Warn("half a body of outputs not removed", slog.Any(messages.KeyErr, derr))
		}
		return nil, err
	}
	return ref, nil
}

// withoutOutputs is a record as the journal has it: without outputs that are in a body of their own.
func withoutOutputs(m proto.Message) proto.Message {
	switch m := m.(type) {
	case *messages.LeaseRecord:
		if m.GetOutcome().GetOutputsBody() != nil {
			m = proto.CloneOf(m)
			m.Outcome.Outputs = nil
			return m
		}
	case *messages.StepRecord:
		if m.GetOutputsBody() != nil {
			m = proto.CloneOf(m)
			m.Outputs = nil
			return m
		}
	}
	return m
}

// eventWithoutOutputs is the same for an event: the record of the step, which is written with it, says where they are.
func eventWithoutOutputs(e *messages.RunEvent, writes []write) *messages.RunEvent {
	if len(e.GetOutputs()) == 0 {
		return e
	}
	for _, w := range writes {
		s, ok := w.body.(*messages.StepRecord)
		if !ok || s.GetOutputsBody() == nil || s.GetJob() != e.GetJob() || s.GetStep() != e.GetStep() {
			continue
		}
		more, err := proto.Marshal(&messages.EventBody{OutputsKey: s.GetOutputsBody().GetKey()})
		if err != nil {
			return e // it is too large then, and refused as such
		}
		e = proto.CloneOf(e)
		e.Outputs = nil
		e.ProtoReflect().SetUnknown(more)
		return e
	}
	return e
}

// decodeEvent reads an event out of the journal, with all its outputs.
func (sys *System) decodeEvent(body []byte) (*messages.RunEvent, error) {
	e := &messages.RunEvent{}
	if err := proto.Unmarshal(body, e); err != nil {
		return nil, err
	}
	more := e.ProtoReflect().GetUnknown()
	if len(more) == 0 {
		return e, nil
	}
	var at messages.EventBody
	if err := proto.Unmarshal(more, &at); err != nil {
		return nil, err
	}
	if at.GetOutputsKey() != "" {
		e.Outputs = outputMap(sys.readOutputs(at.GetOutputsKey(), "an event of run "+e.GetRunId()))
		e.ProtoReflect().SetUnknown(nil)
	}
	return e, nil
}

// fetchOutputs completes a record that comes out of the journal.
func (sys *System) fetchOutputs(m proto.Message) {
	switch m := m.(type) {
	case *messages.LeaseRecord:
		if o := m.GetOutcome(); o.GetOutputsBody() != nil {
			o.Outputs = sys.readOutputs(o.GetOutputsBody().GetKey(), "lease "+leaseID(m.GetDispatchId(), m.GetGeneration()))
		}
	case *messages.StepRecord:
		if m.GetOutputsBody() != nil {
			m.Outputs = sys.readOutputs(m.GetOutputsBody().GetKey(), "step "+stepRecordID(m.GetRunId(), m.GetOrdinal()))
		}
	}
}

// readOutputs reads outputs. That they are gone, which only damage to the disk does, takes nothing else with it.
func (sys *System) readOutputs(key, owner string) []*messages.KeyValue {
	outputs, err := readOutputs(sys.journal, key)
	if err != nil {
		sys.log.Warn("outputs of a step are lost", slog.String(messages.KeyBody, key), slog.Any(messages.KeyErr, fmt.Errorf("%s: %w", owner, err)))
	}
	return outputs
}

func readOutputs(j persistence.Journal, key string) (_ []*messages.KeyValue, err error) {
	blob, err := j.OpenBlob(key)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(blob)
	if cerr := blob.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	var m messages.Outputs
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("decode body %s: %w", key, err)
	}
	return m.GetOutputs(), nil
}
