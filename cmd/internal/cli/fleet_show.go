package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) workerShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one worker, what it runs and what it ran lately",
		Long: "Show one worker: since when and why it drains or is paused, what it runs, and the last ten dispatches that it had.\n" +
			"Those from before the last start of the orchestrator are looked for among its last 10,000.",
		Example: "  swamp worker show gpu-1",
		Args:    wants("NAME"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		w, err := answer[*messages.WorkerDetail](a.ask(cmd.Context(), from, messages.VerbWorkerShow, &messages.WorkerShowParams{Name: args[0]}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, w)
		}
		return a.writeWorker(w)
	})
}

func (a *app) writeWorker(w *messages.WorkerDetail) error {
	out, now := a.host.Stdout, a.host.Now()
	facts := [][2]string{{"name", w.GetName()}, {"status", w.GetStatus()}}
	if w.GetIntentSince() != nil {
		facts = append(facts, [2]string{w.GetIntent(), "since " + clock(now, w.GetIntentSince()) + ", " + ago(now, w.GetIntentSince())})
	}
	facts = append(facts, [2]string{"reason", w.GetReason()})
	if w.Note != nil {
		facts = append(facts, [2]string{"note", w.GetNote()})
	}
	if w.RemainingMs != nil {
		facts = append(facts, [2]string{"paused until", clock(now, w.GetUntil()) + ", for " + age(messages.Duration(w.GetRemainingMs())) + " more"})
	}
	facts = append(facts, [][2]string{
		{"health", w.GetHealth()},
		{"slots", slots(w)},
		{"labels", labels(w.GetLabels())},
		{"platform", platform(w.GetPlatform(), w.GetArch())},
		{"enrolled", clock(now, w.GetEnrolledAt())},
		{"last seen", lastSeen(a.host, w.GetConnected(), w.GetLastSeenAt())},
		{"instance", w.GetInstanceUuid()},
		{"machine", w.GetMachineId()},
		{"version", w.GetVersion()},
	}...)
	if err := writeFacts(out, facts); err != nil {
		return err
	}
	if err := a.writeDispatches("runs", w.GetRunning()); err != nil {
		return err
	}
	return a.writeDispatches("ran lately", w.GetRecent())
}

func (a *app) writeDispatches(title string, items []*messages.DispatchItem) error {
	if len(items) == 0 {
		return nil
	}
	if _, err := io.WriteString(a.host.Stdout, "\n"+title+":\n"); err != nil {
		return err
	}
	now := a.host.Now()
	t := table{columns: []string{"STEP", "STATUS", "STARTED", "TOOK", "ATTEMPT", "RUN", "ERROR"}, paint: paintStatus(1)}
	for _, d := range items {
		t.add(d.GetJobName()+"/"+d.GetStepName(), d.GetStatus(), clock(now, d.GetStartedAt()), span(now, d.GetStartedAt(), d.GetEndedAt()),
			fmt.Sprint(d.GetAttempt()), d.GetRunId(), orDash(d.GetError()))
	}
	return t.write(a.host.Stdout, a.host.color())
}
