package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

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
			t.add(w.GetName(), w.GetStatus(), slots(w), orDash(labels(w.GetLabels())),
				platform(w.GetPlatform(), w.GetArch()), orDash(w.GetVersion()), lastSeen(a.host, w.GetConnected(), w.GetLastSeenAt()))
		}
		if err := t.write(a.host.Stdout, a.host.color()); err != nil {
			return err
		}
		if hint := fleetHint(fleet.GetItems()); hint != "" {
			fmt.Fprintln(a.host.Stderr, hint)
		}
		return nil
	})
}

// fleetHint tells what is meant by a status that is not plain, and what can be done.
func fleetHint(items []*messages.WorkerItem) string {
	n := map[string]int{}
	for _, w := range items {
		n[w.GetStatus()]++
	}
	var hints []string
	if k := n[string(messages.WorkerDraining)]; k > 0 {
		hints = append(hints, fmt.Sprintf("%d draining: gets nothing new and leaves when its steps have ended; swamp worker show NAME says why", k))
	}
	if k := n[string(messages.WorkerPaused)]; k > 0 {
		hints = append(hints, fmt.Sprintf("%d paused: gets nothing new; swamp worker resume NAME ends that", k))
	}
	if k := n[string(messages.WorkerUnhealthy)]; k > 0 {
		hints = append(hints, fmt.Sprintf("%d unhealthy: could not start steps, and is tried again by and by; swamp worker show NAME says why", k))
	}
	return strings.Join(hints, "\n")
}

// slots is how many of a worker's slots are taken.
func slots(w interface {
	GetActiveDispatchIds() []string
	GetCapacity() int32
},
) string {
	return fmt.Sprintf("%d/%d", len(w.GetActiveDispatchIds()), w.GetCapacity())
}

func labels(m map[string]string) string { return messages.LabelsOf(m).String() }

func platform(os, arch string) string {
	if arch == "" {
		return orDash(os)
	}
	return os + "/" + arch
}

func lastSeen(h *Host, connected bool, at *timestamppb.Timestamp) string {
	if connected {
		return "now"
	}
	return ago(h.Now(), at)
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
