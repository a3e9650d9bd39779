package actors

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Bounds of what is shown of one actor.
const (
	inspectEvents   = 100
	inspectChildren = 200
)

// How an actor lives.
const (
	lifeAnswers = "answers"
	lifeStuck   = "stuck"
	lifeRests   = "rests"
	lifeStopped = "stopped"
)

// actorInspect shows one actor from all sides. One that has stopped is shown as the journal has it.
func (sys *System) actorInspect(ctx context.Context, p *messages.ActorInspectParams) (proto.Message, error) {
	if p.GetPid() == "" || len(p.GetPid()) > 1024 {
		return nil, messages.Faultf(messages.CodeInvalid, "actor inspect needs a PID")
	}
	pid, lives, err := sys.findPID(p.GetPid())
	if messages.CodeOf(err) == messages.CodeNotFound {
		if at, ok := sys.pastAddress(p.GetPid()); ok {
			return sys.inspectPast(at, sys.pidOf(at), lifeStopped)
		}
	}
	if err != nil {
		return nil, err
	}
	i, ok := sys.byPID.Load(pid)
	if !lives || !ok {
		at, _ := sys.pastAddress(pid)
		return sys.inspectPast(at, pid, lifeRests)
	}
	return sys.inspectLiving(ctx, i.(*actorInfo))
}

// inspectLiving asks the actor what it believes, in its own order, and shows what can be seen of it without.
func (sys *System) inspectLiving(ctx context.Context, info *actorInfo) (proto.Message, error) {
	in, err := sys.look(ctx, info)
	if errors.Is(err, errGone) {
		return sys.inspectPast(info.address, info.pid.GetId(), lifeStopped)
	}
	now := time.Now()
	item := info.item()
	result := &messages.ActorInspectResult{
		Pid: item.GetPid(), Kind: item.GetKind(), Life: lifeAnswers, State: &item.State, Mailbox: item.GetMailbox(), Processed: item.GetProcessed(),
		Restarts: item.GetRestarts(), StartedAt: item.GetStartedAt(), Children: sys.childrenOf(item.GetPid()), Watchers: int32(sys.watches.watching(info)),
	}
	result.Parent = optional(parentOf(info.address.kind, item.GetPid()))
	for _, m := range info.trail.all() {
		result.Messages = append(result.Messages, &messages.ActorMessage{At: messages.Time(m.at()), Name: m.name()})
	}
	if f := info.fault.Load(); f != nil {
		result.LastError = &messages.ActorFault{At: messages.Time(f.at), Command: f.command, Text: f.text, Stack: optional(f.stack)}
	}
	if err != nil {
		result.Life = lifeStuck
		if last, busy, _ := info.trail.last(); busy {
			name, took := last.name(), messages.Milliseconds(now.Sub(last.at()))
			result.Current, result.CurrentMs = &name, &took
		}
		if !errors.Is(err, errStuck) { // it has answered that it cannot
			result.LastError = cmp.Or(result.LastError, &messages.ActorFault{At: messages.Time(now), Command: "lookInside", Text: err.Error()})
		}
		return result, sys.fromJournal(info.address, result)
	}
	result.Believes = factStruct(in)
	for _, t := range in.timers {
		result.Timers = append(result.Timers, &messages.ActorTimer{
			Name: t.name, WaitsFor: t.waitsFor, DueAt: messages.Time(t.at), LeftMs: messages.Milliseconds(max(t.at.Sub(now), 0)),
		})
	}
	for _, o := range in.owes {
		to := sys.pidOf(o.to)
		result.Owes = append(result.Owes, &messages.ActorDebt{To: to, Message: o.message, AgainMs: messages.Milliseconds(max(o.at.Sub(now), 0))})
	}
	if err := sys.fromJournal(info.address, result); err != nil {
		return nil, err
	}
	return result, compare(in, result)
}

// inspectPast shows an actor that takes no memory: what the journal has of it.
func (sys *System) inspectPast(at address, pid, life string) (proto.Message, error) {
	result := &messages.ActorInspectResult{Pid: pid, Kind: at.kind, Life: life, Parent: optional(parentOf(at.kind, pid))}
	if err := sys.fromJournal(at, result); err != nil {
		return nil, err
	}
	if result.GetRecord() != nil {
		state := result.GetRecord().GetState()
		result.State = &state
	}
	result.Children = sys.childrenOf(pid)
	return result, nil
}

// fromJournal adds an actor's record, its former versions and the events that it had a part in.
func (sys *System) fromJournal(at address, result *messages.ActorInspectResult) error {
	kind, id, run := sys.recordOf(at)
	if kind == "" {
		return nil
	}
	rec, err := sys.journal.Get(kind, id)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		return err
	}
	if err == nil {
		shown, body, err := journalRecord(rec)
		if err != nil {
			return err
		}
		result.Record = shown
		if l, ok := body.(*messages.LeaseRecord); ok {
			run = l.GetRunId()
		}
	}
	history, err := sys.journal.History(kind, id)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		return err
	}
	for _, rec := range history {
		shown, _, err := journalRecord(rec)
		if err != nil {
			return err
		}
		result.History = append(result.History, shown)
	}
	if run == "" {
		return nil
	}
	result.Events, err = sys.eventsOf(run, at)
	return err
}

// eventsOf are the last events of a run that an actor had a part in.
func (sys *System) eventsOf(run string, at address) ([]*messages.RunEvent, error) {
	var list []*messages.RunEvent
	err := sys.eachEvent(run, func(e *messages.RunEvent) {
		switch at.kind {
		case kindStep:
			if stepAddress(run, e.GetJob(), e.GetStep()) != at {
				return
			}
		case kindLease:
			dispatch, _, _ := strings.Cut(at.id, "/")
			if escape(e.GetDispatchId()) != dispatch {
				return
			}
		}
		if list = append(list, e); len(list) > 2*inspectEvents {
			list = append(list[:0], list[len(list)-inspectEvents:]...)
		}
	})
	return list[max(len(list)-inspectEvents, 0):], err
}

// eachEvent reads the events of a run in their order.
func (sys *System) eachEvent(run string, fn func(*messages.RunEvent)) error {
	for after := uint64(0); ; {
		events, err := sys.journal.Events(run, after, followPage)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			r, err := sys.decodeEvent(e.Body)
			if err != nil {
				return err
			}
			r.Seq, r.Offset = uint32(e.Seq), nil
			fn(r)
			after = e.Seq
		}
	}
}

// recordOf is the kind and id of an actor's record, and the run whose events tell of it.
func (sys *System) recordOf(at address) (kind persistence.Kind, id, run string) {
	switch at.kind {
	case kindScheduler:
		return persistence.KindScheduler, kindScheduler, ""
	case kindWorker, kindToken:
		return persistence.Kind(at.kind), unescape(at.id), ""
	case kindLease:
		dispatch, generation, _ := strings.Cut(at.id, "/")
		return persistence.KindLease, unescape(dispatch) + "/" + generation, ""
	case kindRun:
		return persistence.KindRun, unescape(at.id), unescape(at.id)
	case kindStep:
		run, job, step, err := stepNames(at)
		if err != nil {
			return "", "", ""
		}
		found := ""
		_ = sys.scan(persistence.KindStep, false, run+"/", newBody[messages.StepRecord], func(rec persistence.Record, m proto.Message) bool {
			if s := m.(*messages.StepRecord); s.GetJob() == job && s.GetStep() == step {
				found = rec.ID
			}
			return found == ""
		})
		return persistence.KindStep, found, run
	default:
		return "", "", ""
	}
}

// pidOf is the PID of an address, whether it lives or not.
func (sys *System) pidOf(at address) string {
	if i, ok := sys.refs.Load(at); ok {
		return i.(*actorInfo).pid.GetId()
	}
	switch at.kind {
	case kindRoot:
		return sys.root.GetId()
	case kindRouter, kindScheduler:
		return sys.root.GetId() + "/" + at.id
	case kindStep:
		return sys.root.GetId() + "/" + routerOf(kindRun).id + "/" + at.id
	default:
		return sys.root.GetId() + "/" + routerOf(at.kind).id + "/" + at.id
	}
}

// pastAddress is the address behind a PID, if the journal has a record of it. A run's or a worker's name alone will do.
func (sys *System) pastAddress(pid string) (address, bool) {
	pid = strings.TrimPrefix(strings.Trim(pid, "/"), sys.root.GetId()+"/")
	router, rest, ok := strings.Cut(pid, "/")
	var tries []address
	switch {
	case !ok:
		tries = []address{{kindRun, pid}, {kindWorker, pid}, {kindToken, pid}}
	case router == routerOf(kindRun).id && strings.Contains(rest, "/"):
		tries = []address{{kindStep, rest}}
	case router == routerOf(kindRun).id:
		tries = []address{{kindRun, rest}}
	case router == routerOf(kindWorker).id:
		tries = []address{{kindWorker, rest}}
	case router == routerOf(kindToken).id:
		tries = []address{{kindToken, rest}}
	case router == routerOf(kindLease).id:
		tries = []address{{kindLease, rest}}
	default:
		tries = []address{{kindStep, pid}, {kindLease, pid}}
	}
	for _, at := range tries {
		if kind, id, _ := sys.recordOf(at); kind != "" && id != "" {
			if _, err := sys.journal.Get(kind, id); err == nil {
				return at, true
			}
		}
	}
	return address{}, false
}

// childrenOf are the living actors right below one.
func (sys *System) childrenOf(pid string) []*messages.ActorItem {
	var items []*messages.ActorItem
	sys.byPID.Range(func(id, i any) bool {
		if parentOf(i.(*actorInfo).address.kind, id.(string)) == pid {
			items = append(items, i.(*actorInfo).item())
		}
		return true
	})
	slices.SortFunc(items, func(a, b *messages.ActorItem) int { return comparePIDs(a.GetPid(), b.GetPid()) })
	return items[:min(len(items), inspectChildren)]
}

// parentOf is the PID of an actor's parent. The own names of steps and leases have a slash in them.
func parentOf(kind, pid string) string {
	names := 1
	if kind == kindStep || kind == kindLease {
		names = 2
	}
	for range names {
		pid = pid[:max(strings.LastIndexByte(pid, '/'), 0)]
	}
	return pid
}

// journalRecord is a record for people, and its body. What could be mistaken for a secret is not shown.
func journalRecord(rec persistence.Record) (*messages.JournalRecord, proto.Message, error) {
	body := bodyOf(rec.Kind)
	shown := &messages.JournalRecord{
		Kind: string(rec.Kind), Id: rec.ID, Version: float64(rec.Version), State: rec.State, Ended: rec.Ended, At: messages.Time(rec.Time),
	}
	if body == nil {
		return shown, nil, nil
	}
	if err := proto.Unmarshal(rec.Body, body); err != nil {
		return nil, nil, err
	}
	var err error
	shown.Body, err = bodyStruct(body)
	return shown, body, err
}

func bodyOf(kind persistence.Kind) proto.Message {
	switch kind {
	case persistence.KindRun:
		return &messages.RunRecord{}
	case persistence.KindStep:
		return &messages.StepRecord{}
	case persistence.KindLease:
		return &messages.LeaseRecord{}
	case persistence.KindWorker:
		return &messages.WorkerRecord{}
	case persistence.KindToken:
		return &messages.TokenRecord{}
	case persistence.KindScheduler:
		return &messages.SchedulerRecord{}
	default:
		return nil
	}
}

// bodyStruct is the body of a record as JSON.
func bodyStruct(body proto.Message) (*structpb.Struct, error) {
	if t, ok := body.(*messages.TokenRecord); ok {
		t = proto.CloneOf(t)
		t.Digest = nil
		body = t
	}
	data, err := protojson.Marshal(body)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(data, s)
}

// factStruct is what an actor knows, as JSON.
func factStruct(in insight) *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	for _, f := range in.view.facts {
		s.Fields[f.name] = factValue(f.value)
	}
	if in.gathered > 0 {
		s.Fields["gathered"] = factValue(in.gathered)
	}
	if in.held > 0 {
		s.Fields["waitingForSpace"] = factValue(in.held)
	}
	return s
}

func factValue(v any) *structpb.Value {
	switch v := v.(type) {
	case time.Time:
		if v.IsZero() {
			return structpb.NewNullValue()
		}
		return structpb.NewStringValue(v.UTC().Format(time.RFC3339Nano))
	case time.Duration:
		return structpb.NewNumberValue(messages.Milliseconds(v))
	case []string:
		list := &structpb.ListValue{}
		for _, s := range v[:min(len(v), inspectEvents)] {
			list.Values = append(list.Values, structpb.NewStringValue(s))
		}
		return structpb.NewListValue(list)
	case []byte:
		return structpb.NewStringValue(base64.StdEncoding.EncodeToString(v))
	default:
		if value, err := structpb.NewValue(v); err == nil {
			return value
		}
		return structpb.NewNullValue()
	}
}

// compare shows where an actor believes something else than the journal has: a fault.
func compare(in insight, result *messages.ActorInspectResult) error {
	w := in.view.record
	if w == nil {
		return nil
	}
	differ := func(field string, memory, journal *structpb.Value) {
		result.Differences = append(result.Differences, &messages.ActorDifference{Field: field, Memory: memory, Journal: journal})
	}
	if in.noRecord {
		differ("record", structpb.NewStringValue(w.state), structpb.NewNullValue())
		return nil
	}
	if in.record.Version != w.replaces+1 {
		differ("version", structpb.NewNumberValue(float64(w.replaces+1)), structpb.NewNumberValue(float64(in.record.Version)))
	}
	shown, _, err := journalRecord(in.record)
	if err != nil {
		return err
	}
	memory, err := bodyStruct(w.body)
	if err != nil {
		return err
	}
	result.Record = shown // that of the same moment
	names := make(map[string]bool)
	for name := range memory.GetFields() {
		names[name] = true
	}
	for name := range shown.GetBody().GetFields() {
		names[name] = true
	}
	var fields []string
	for name := range names {
		if !slices.Contains(in.view.ahead, name) && !proto.Equal(orNull(memory.GetFields()[name]), orNull(shown.GetBody().GetFields()[name])) {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	for _, name := range fields {
		differ(name, orNull(memory.GetFields()[name]), orNull(shown.GetBody().GetFields()[name]))
	}
	return nil
}

func orNull(v *structpb.Value) *structpb.Value {
	if v == nil {
		return structpb.NewNullValue()
	}
	return v
}
