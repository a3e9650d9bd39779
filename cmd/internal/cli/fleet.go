package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) workerCommand() *cobra.Command {
	return a.group("worker", "Look at the fleet and its queue, admit, run and drain workers",
		a.workerListCommand(), a.workerShowCommand(), a.workerQueueCommand(), a.workerDrainCommand(), a.workerPauseCommand(),
		a.workerResumeCommand(), a.tokenCommand(), a.connectCommand("connect"))
}

func (a *app) workerListCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the connected workers",
		Example: "  swamp worker list --all",
		Args:    wants(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are not connected, and loopback")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		fleet, err := answer[*messages.WorkerListResult](a.ask(cmd.Context(), from, messages.VerbWorkerList, &messages.WorkerListParams{All: all}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, fleet)
		}
		if len(fleet.GetItems()) == 0 {
			text := "no worker is connected: --all shows those that were"
			if all {
				text = "no worker has enrolled yet: admit one with swamp worker token create NAME"
			}
			fmt.Fprintln(a.host.Stderr, text)
			return nil
		}
		t := table{columns: []string{"NAME", "STATUS", "SLOTS", "LABELS", "PLATFORM", "VERSION", "LAST SEEN"}, paint: paintStatus(1)}
		for _, w := range fleet.GetItems() {
			t.add(w.GetName(), w.GetStatus(), slots(w), orDash(labels(w.GetLabels())), platform(w), orDash(w.GetVersion()), lastSeen(a.host, w))
		}
		return t.write(a.host.Stdout, a.host.color())
	})
}

// slots is how many of a worker's slots are taken.
func slots(w *messages.WorkerItem) string {
	return fmt.Sprintf("%d/%d", len(w.GetActiveDispatchIds()), w.GetCapacity())
}

func labels(m map[string]string) string { return messages.LabelsOf(m).String() }

func platform(w *messages.WorkerItem) string {
	if w.GetArch() == "" {
		return orDash(w.GetPlatform())
	}
	return w.GetPlatform() + "/" + w.GetArch()
}

func lastSeen(h *Host, w *messages.WorkerItem) string {
	if w.GetConnected() {
		return "now"
	}
	return ago(h.Now(), w.GetLastSeenAt())
}

func (a *app) workerShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one worker",
		Example: "  swamp worker show gpu-1",
		Args:    wants("NAME"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		w, err := answer[*messages.WorkerItem](a.ask(cmd.Context(), from, messages.VerbWorkerShow, &messages.WorkerShowParams{Name: args[0]}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, w)
		}
		return writeFacts(a.host.Stdout, [][2]string{
			{"name", w.GetName()},
			{"status", w.GetStatus()},
			{"reason", w.GetReason()},
			{"intent", w.GetIntent()},
			{"health", w.GetHealth()},
			{"slots", slots(w)},
			{"labels", labels(w.GetLabels())},
			{"platform", platform(w)},
			{"dispatches", strings.Join(w.GetActiveDispatchIds(), " ")},
			{"enrolled", clock(a.host.Now(), w.GetEnrolledAt())},
			{"last seen", lastSeen(a.host, w)},
			{"instance", w.GetInstanceUuid()},
			{"machine", w.GetMachineId()},
			{"version", w.GetVersion()},
		})
	})
}

func (a *app) workerQueueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Short:   "List the steps that wait for a worker, and why",
		Example: "  swamp worker queue\n  swamp worker queue --output json",
		Args:    wants(),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		queue, err := answer[*messages.WorkerQueueListResult](
			a.ask(cmd.Context(), from, messages.VerbWorkerQueueList, &messages.WorkerQueueListParams{}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, queue)
		}
		if len(queue.GetItems()) == 0 {
			fmt.Fprintln(a.host.Stderr, "no step waits for a worker")
			return nil
		}
		t := table{columns: []string{"AGE", "STEP", "WORKFLOW", "RUN", "REQUIREMENT", "WHY"}}
		for _, q := range queue.GetItems() {
			t.add(age(messages.Duration(q.GetAgeMs())), q.GetJobName()+"/"+q.GetStepName(), q.GetWorkflowName(), q.GetRunId(),
				q.GetRequirement(), reasonOnly(q.GetRequirement(), q.GetWhy()))
		}
		return t.write(a.host.Stdout, a.host.color())
	})
}
