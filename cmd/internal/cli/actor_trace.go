package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) actorTraceCommand() *cobra.Command {
	form := choiceValue{"text", []string{"text", "json", "mermaid"}}
	endpoint := ""
	cmd := &cobra.Command{
		Use:   "trace RUN [STEP]",
		Short: "Tell a run's story across the actors and over the wire",
		Long: "Tell a run's story, or that of one step, across the actors and over the wire: from submitted to done, with the time in each\n" +
			"place. It is made of the run's events and leases, so it is there for what has ended too.\n\n" +
			"Each run is a W3C trace, whose id is the run's own; a step finds its place in it as TRACEPARENT. With --otlp-endpoint the\n" +
			"same spans are sent to a collector, as JSON over HTTP, with the headers of OTEL_EXPORTER_OTLP_HEADERS.",
		Example: "  swamp actor trace 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f train/fit\n" +
			"  swamp actor trace 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f --format mermaid\n" +
			"  swamp actor trace 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f --otlp-endpoint http://localhost:4318",
		Args: wants("RUN", "[STEP]"),
	}
	flags := cmd.Flags()
	flags.Var(&form, "format", "how to print it: text, JSON, or a Mermaid sequence diagram")
	flags.StringVar(&endpoint, "otlp-endpoint", "", "`URL` of an OTLP/HTTP collector to send the spans to")
	a.addFormat(flags)
	a.addClient(flags)
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		var send *otlpClient
		if endpoint != "" {
			var err error
			if send, err = a.newOTLP(endpoint); err != nil {
				return usagef("invalid value of %s: %v", from.name("otlp-endpoint"), err)
			}
		}
		params := &messages.ActorTraceParams{RunId: args[0], Step: strings.Join(args[1:], "")}
		t, err := answer[*messages.ActorTraceResult](a.ask(cmd.Context(), from, messages.VerbActorTrace, params, true))
		if err != nil {
			return err
		}
		if send != nil {
			n, open, err := send.export(cmd.Context(), t)
			if err != nil {
				return fmt.Errorf("send the spans to %s: %w", endpoint, err)
			}
			fmt.Fprintf(a.host.Stderr, "sent %d spans of trace %s to %s; %d go on, and are not sent\n", n, t.GetTraceId(), endpoint, open)
		}
		switch {
		case a.json() || form.value == "json":
			return printShape(a.host.Stdout, t)
		case form.value == "mermaid":
			_, err = io.WriteString(a.host.Stdout, mermaid(t))
			return err
		default:
			return a.writeTrace(t)
		}
	})
}

func (a *app) writeTrace(t *messages.ActorTraceResult) error {
	out, now := a.host.Stdout, a.host.Now()
	err := writeFacts(out, [][2]string{
		{"run", t.GetRunId()}, {"workflow", t.GetWorkflowName()}, {"status", t.GetStatus()}, {"trace", t.GetTraceId()},
		{"started", clock(now, t.GetStartedAt())}, {"took", span(now, t.GetStartedAt(), t.GetEndedAt())},
	})
	if err != nil {
		return err
	}
	moves := table{columns: []string{"AFTER", "FROM", "TO", "WHAT"}}
	for _, m := range t.GetMoves() {
		moves.add(after(m.GetSinceMs()), m.GetFrom(), m.GetTo(), m.GetText())
	}
	if err := a.section("story", &moves); err != nil {
		return err
	}
	spans := table{columns: []string{"SPAN", "TOOK", "ATTEMPT", "STATUS", "ERROR"}, paint: paintStatus(3)}
	depth := map[string]int{}
	for _, s := range t.GetSpans() {
		if s.ParentId != nil {
			depth[s.GetSpanId()] = depth[s.GetParentId()] + 1
		}
		took := after(s.GetTookMs())
		if s.GetEndedAt() == nil {
			took += " …"
		}
		attempt := ""
		if s.Attempt != nil {
			attempt = fmt.Sprint(s.GetAttempt())
		}
		spans.add(strings.Repeat("  ", depth[s.GetSpanId()])+s.GetName(), took, orDash(attempt), orDash(s.GetStatus()), orDash(s.GetError()))
	}
	if err := a.section("spans", &spans); err != nil {
		return err
	}
	places := table{columns: []string{"PLACE", "TOOK", "TIMES"}}
	for _, p := range t.GetPlaces() {
		places.add(p.GetPlace(), after(p.GetTookMs()), fmt.Sprint(p.GetCount()))
	}
	if err := a.section("time in each place", &places); err != nil {
		return err
	}
	if t.GetLeftOut() > 0 {
		fmt.Fprintf(a.host.Stderr, "%d more are left out: name a step\n", t.GetLeftOut())
	}
	return nil
}

// after writes milliseconds as a person compares them.
func after(ms float64) string {
	if ms < 10_000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return elapsed(messages.Duration(ms))
}

// mermaid is the story as a sequence diagram. Names are quoted by numbers: those of people may hold anything.
func mermaid(t *messages.ActorTraceResult) string {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	ids := map[string]string{}
	place := func(name string) string {
		if ids[name] == "" {
			ids[name] = fmt.Sprintf("p%d", len(ids))
			fmt.Fprintf(&b, "    participant %s as %s\n", ids[name], mermaidText(name))
		}
		return ids[name]
	}
	for _, m := range t.GetMoves() {
		place(m.GetFrom())
		place(m.GetTo())
	}
	for _, m := range t.GetMoves() {
		arrow := "->>"
		if strings.HasPrefix(m.GetFrom(), "worker ") || strings.HasPrefix(m.GetTo(), "worker ") {
			arrow = "-)" // over the wire
		}
		fmt.Fprintf(&b, "    %s%s%s: %s (%s)\n", place(m.GetFrom()), arrow, place(m.GetTo()), mermaidText(m.GetText()), after(m.GetSinceMs()))
	}
	return b.String()
}

// mermaidText makes text harmless in a diagram, where some characters end a line or begin an entity.
func mermaidText(s string) string {
	return strings.NewReplacer("#", "#35;", ";", "#59;", "<", "#lt;", ">", "#gt;", "\"", "#quot;", "`", "#96;").Replace(oneLine(s))
}
