package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
)

func (a *app) actorInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect PID",
		Short: "Show one actor: its record, what it believes, its timers and last messages",
		Long: "Show one actor from all sides: what the journal has of it, what it believes itself, where the two differ (a fault), what it\n" +
			"waits for and owes to others, its children, its last messages and its last error. An actor that does not answer in two\n" +
			"seconds is shown as stuck. One that rests or has stopped is shown as the journal has it.",
		Example: "  swamp actor inspect scheduler\n  swamp actor inspect fleet/gpu-1\n  swamp actor inspect 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f",
		Args:    wants("PID"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		r, err := answer[*messages.ActorInspectResult](a.ask(cmd.Context(), from, messages.VerbActorInspect, &messages.ActorInspectParams{Pid: args[0]}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, r)
		}
		return a.writeInspection(r)
	})
}

func (a *app) writeInspection(r *messages.ActorInspectResult) error {
	out, now := a.host.Stdout, a.host.Now()
	facts := [][2]string{{"pid", r.GetPid()}, {"kind", r.GetKind()}, {"life", r.GetLife()}, {"state", r.GetState()}, {"parent", r.GetParent()}}
	if r.GetStartedAt() != nil {
		facts = append(facts, [][2]string{
			{"started", clock(now, r.GetStartedAt()) + ", " + ago(now, r.GetStartedAt())},
			{"mailbox", fmt.Sprint(r.GetMailbox())},
			{"processed", fmt.Sprintf("%.0f", r.GetProcessed())},
			{"restarts", fmt.Sprint(r.GetRestarts())},
			{"watchers", fmt.Sprint(r.GetWatchers())},
		}...)
	}
	if r.Current != nil {
		facts = append(facts, [2]string{"in hand", r.GetCurrent() + ", for " + elapsed(messages.Duration(r.GetCurrentMs()))})
	}
	if err := writeFacts(out, facts); err != nil {
		return err
	}
	sections := []func() error{
		func() error { return a.writeDifferences(r.GetDifferences()) },
		func() error { return a.writeFault(r.GetLastError()) },
		func() error { return a.writeStruct("believes", r.GetBelieves()) },
		func() error { return a.writeRecords(r) },
		func() error { return a.writeTimers(r) },
		func() error { return a.writeChildren(r.GetChildren()) },
		func() error { return a.writeEvents(r.GetEvents()) },
		func() error { return a.writeMessages(r.GetMessages()) },
	}
	for _, section := range sections {
		if err := section(); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) title(text string) error {
	_, err := io.WriteString(a.host.Stdout, "\n"+text+":\n")
	return err
}

// section writes a table with a title, or nothing where it is empty.
func (a *app) section(title string, t *table) error {
	if len(t.rows) == 0 {
		return nil
	}
	if err := a.title(title); err != nil {
		return err
	}
	return t.write(a.host.Stdout, a.host.color())
}

func (a *app) writeDifferences(list []*messages.ActorDifference) error {
	t := table{columns: []string{"FIELD", "MEMORY", "JOURNAL"}}
	for _, d := range list {
		t.add(d.GetField(), plainValue(d.GetMemory()), plainValue(d.GetJournal()))
	}
	return a.section("FAULT: memory and journal differ", &t)
}

func (a *app) writeFault(f *messages.ActorFault) error {
	if f == nil {
		return nil
	}
	now := a.host.Now()
	if err := a.title(fmt.Sprintf("last error, %s at %s", ago(now, f.GetAt()), oneLine(orDash(f.GetCommand())))); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.host.Stdout, oneLine(f.GetText()))
	if err == nil && f.Stack != nil {
		_, err = fmt.Fprintln(a.host.Stdout, safeText(strings.TrimRight(f.GetStack(), "\n")))
	}
	return err
}

func (a *app) writeStruct(title string, s *structpb.Struct) error {
	var facts [][2]string
	for _, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		facts = append(facts, [2]string{oneLine(name), plainValue(s.GetFields()[name])})
	}
	if len(facts) == 0 {
		return nil
	}
	if err := a.title(title); err != nil {
		return err
	}
	return writeFacts(a.host.Stdout, facts)
}

// plainValue is a value as a person reads it.
func plainValue(v *structpb.Value) string {
	switch v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return "-"
	case *structpb.Value_StringValue:
		return v.GetStringValue()
	default:
		data, err := json.Marshal(v.AsInterface())
		if err != nil {
			return "-"
		}
		return string(data)
	}
}

func (a *app) writeRecords(r *messages.ActorInspectResult) error {
	rec := r.GetRecord()
	if rec == nil {
		return nil
	}
	now := a.host.Now()
	title := fmt.Sprintf("record %s %s, version %.0f, written %s", rec.GetKind(), oneLine(rec.GetId()), rec.GetVersion(), ago(now, rec.GetAt()))
	if err := a.writeStruct(title, rec.GetBody()); err != nil {
		return err
	}
	t := table{columns: []string{"VERSION", "STATE", "AT"}}
	for _, h := range r.GetHistory() {
		t.add(fmt.Sprintf("%.0f", h.GetVersion()), orDash(h.GetState()), clock(now, h.GetAt()))
	}
	return a.section("former versions", &t)
}

func (a *app) writeTimers(r *messages.ActorInspectResult) error {
	t := table{columns: []string{"TIMER", "WAITS FOR", "IN"}}
	for _, timer := range r.GetTimers() {
		t.add(timer.GetName(), timer.GetWaitsFor(), elapsed(messages.Duration(timer.GetLeftMs())))
	}
	if err := a.section("timers", &t); err != nil {
		return err
	}
	owes := table{columns: []string{"TO", "OWES", "AGAIN IN"}}
	for _, o := range r.GetOwes() {
		owes.add(o.GetTo(), o.GetMessage(), elapsed(messages.Duration(o.GetAgainMs())))
	}
	return a.section("owes, until it is confirmed", &owes)
}

func (a *app) writeChildren(items []*messages.ActorItem) error {
	t := table{columns: []string{"CHILD", "KIND", "STATE", "MAILBOX", "LAST MESSAGE"}, paint: paintStatus(2)}
	for _, c := range items {
		t.add(c.GetPid(), c.GetKind(), orDash(c.GetState()), fmt.Sprint(c.GetMailbox()), orDash(c.GetLastMessage()))
	}
	return a.section("children", &t)
}

func (a *app) writeEvents(events []*messages.RunEvent) error {
	t := table{columns: []string{"AT", "SEQ", "EVENT", "STEP", "WORKER", "DETAIL"}}
	for _, e := range events {
		step := e.GetJob()
		if e.Step != nil {
			step += "/" + e.GetStep()
		}
		t.add(moment(e.GetAt()), fmt.Sprint(e.GetSeq()), e.GetKind(), orDash(step), orDash(e.GetWorker()), orDash(e.GetError()+e.GetWhy()))
	}
	return a.section("events", &t)
}

func (a *app) writeMessages(list []*messages.ActorMessage) error {
	t := table{columns: []string{"AT", "MESSAGE"}}
	for _, m := range list {
		t.add(moment(m.GetAt()), m.GetName())
	}
	return a.section("last messages", &t)
}
