package actors

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// modelStore is a journal in a few lines: versions, conditions, streams and output, and what must hold of every commit.
type modelStore struct {
	records  map[modelKey]*modelRecord
	streams  map[string][]*messages.RunEvent
	output   map[string]uint32 // durable bytes of a dispatch's log
	sequence uint64
	epoch    uint64
	noSpace  bool
}

type modelKey struct{ kind, id string }

type modelRecord struct {
	version uint64
	state   string
	ended   bool
	epoch   uint64
	body    []byte
}

var (
	errModelCondition = errors.New("condition failed")
	errModelNoSpace   = errors.New("no space")
)

func newModelStore() *modelStore {
	return &modelStore{
		records: make(map[modelKey]*modelRecord), streams: make(map[string][]*messages.RunEvent),
		output: make(map[string]uint32), sequence: 100, epoch: 1,
	}
}

// commit takes a decision. A broken rule is a text; a refusal that a machine has to live with is an error.
func (s *modelStore) commit(d decision) (broken string, err error) {
	if d.log != nil {
		if broken := s.append(d.log); broken != "" {
			return broken, nil
		}
	}
	if len(d.writes) == 0 && len(d.events) == 0 {
		return "", nil
	}
	if s.noSpace && (d.class == classNewWork || d.class == classData && len(d.writes) > 0) {
		return "", errModelNoSpace
	}
	for _, q := range d.requires {
		if r := s.records[modelKey{q.kind, q.id}]; r == nil || r.ended || r.version != q.version {
			return "", errModelCondition
		}
	}
	size, seen := 0, make(map[modelKey]bool)
	for _, w := range d.writes {
		key := modelKey{w.kind, w.id}
		old := s.records[key]
		switch {
		case seen[key]:
			return fmt.Sprintf("%s %s is written twice in one commit", w.kind, w.id), nil
		case w.state == "":
			return fmt.Sprintf("%s %s is written without a state", w.kind, w.id), nil
		case old == nil && w.replaces != 0, old != nil && old.version != w.replaces:
			return fmt.Sprintf("stale writer: %s %s replaces %d, the journal has %+v", w.kind, w.id, w.replaces, old), nil
		case old != nil && old.ended:
			return fmt.Sprintf("%s %s has ended and is written again", w.kind, w.id), nil
		case old != nil && w.kind == kindStep && messages.StepStatus(old.state).Ended():
			return fmt.Sprintf("step %s has ended as %s and is written again", w.id, old.state), nil
		}
		seen[key] = true
		size += proto.Size(w.body)
	}
	entries := len(d.writes) + len(d.events)
	if entries > 1000 || size > 512<<10 {
		return fmt.Sprintf("a commit of %d entries and %d bytes is too large", entries, size), nil
	}
	if d.newStream && len(s.streams[d.stream]) > 0 {
		return "stream " + d.stream + " is said to be new", nil
	}
	for _, w := range d.writes {
		body, err := proto.Marshal(w.body)
		if err != nil {
			return fmt.Sprintf("encode %s %s: %v", w.kind, w.id, err), nil
		}
		s.records[modelKey{w.kind, w.id}] = &modelRecord{w.replaces + 1, w.state, w.ended, s.epoch, body}
	}
	for _, e := range d.events {
		s.streams[d.stream] = append(s.streams[d.stream], proto.Clone(e).(*messages.RunEvent))
	}
	return "", nil
}

// append takes chunks of output as the journal does: what it has already is dropped, and a gap is a fault.
func (s *modelStore) append(l *logWrite) string {
	for _, c := range l.chunks {
		end := c.GetOffset() + uint32(len(c.GetData()))
		if have := s.output[l.dispatch]; c.GetOffset() > have {
			return fmt.Sprintf("output of %s has a gap from %d to %d", l.dispatch, have, c.GetOffset())
		}
		s.output[l.dispatch] = max(s.output[l.dispatch], end)
	}
	return ""
}

// read decodes a record, and returns its version; 0 where there is none.
func (s *modelStore) read(kind, id string, body proto.Message) uint64 {
	r := s.records[modelKey{kind, id}]
	if r == nil {
		return 0
	}
	if err := proto.Unmarshal(r.body, body); err != nil {
		panic(err) // it was encoded here
	}
	return r.version
}

// live are the ids of the records of a kind that have not ended.
func (s *modelStore) live(kind string) []string {
	var ids []string
	for k, r := range s.records {
		if k.kind == kind && !r.ended {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// steps are the records of a run's steps.
func (s *modelStore) steps(run string) []*messages.StepRecord {
	var steps []*messages.StepRecord
	for k, r := range s.records {
		if k.kind == kindStep && strings.HasPrefix(k.id, run+"/") {
			m := &messages.StepRecord{}
			if err := proto.Unmarshal(r.body, m); err != nil {
				panic(err)
			}
			steps = append(steps, m)
		}
	}
	return steps
}

func (s *modelStore) bindings(token string, generation uint32) []*messages.BindingRecord {
	var bindings []*messages.BindingRecord
	for k, r := range s.records {
		if k.kind == recordBinding && strings.HasPrefix(k.id, bindingID(token, generation, "")) {
			m := &messages.BindingRecord{}
			if err := proto.Unmarshal(r.body, m); err != nil {
				panic(err)
			}
			bindings = append(bindings, m)
		}
	}
	return bindings
}

// checkSteps holds the records of steps, waits and leases against each other: what stands in one commit has to agree
// after every commit.
func (s *modelStore) checkSteps(run string) string {
	waiting, inFlight := make(map[uint32][]string), make(map[uint32][]string)
	for k, r := range s.records {
		switch {
		case k.kind == recordPending && !r.ended && strings.HasPrefix(k.id, run+"."):
			p := &messages.PendingRecord{}
			s.read(k.kind, k.id, p)
			waiting[p.GetOrdinal()] = append(waiting[p.GetOrdinal()], k.id)
		case k.kind == kindLease && !r.ended && strings.HasPrefix(k.id, run+"."):
			l := &messages.LeaseRecord{}
			s.read(k.kind, k.id, l)
			inFlight[l.GetOrdinal()] = append(inFlight[l.GetOrdinal()], k.id)
		}
	}
	for _, step := range s.steps(run) {
		o := step.GetOrdinal()
		if n := len(inFlight[o]); n > 1 {
			return fmt.Sprintf("step %d of %s has %d leases in flight: %v", o, run, n, inFlight[o])
		}
		if messages.StepStatus(step.GetStatus()) == messages.StepQueued {
			if len(waiting[o]) != 1 || waiting[o][0] != step.GetQueueId() {
				return fmt.Sprintf("step %d of %s waits in %s, the waits are %v", o, run, step.GetQueueId(), waiting[o])
			}
		} else if len(waiting[o]) > 0 {
			return fmt.Sprintf("step %d of %s is %s and still waits: %v", o, run, step.GetStatus(), waiting[o])
		}
		if messages.StepStatus(step.GetStatus()) == messages.StepRunning {
			id := leaseID(step.GetDispatchId(), step.GetGeneration())
			if s.records[modelKey{kindLease, id}] == nil {
				return fmt.Sprintf("step %d of %s runs under lease %s, which does not exist", o, run, id)
			}
		}
		delete(waiting, o)
	}
	if len(waiting) > 0 {
		return fmt.Sprintf("waits of steps that were never born: %v", waiting)
	}
	return ""
}
