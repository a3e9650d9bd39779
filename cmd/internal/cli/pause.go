package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) workerPauseCommand() *cobra.Command {
	length := durationValue{min: time.Millisecond}
	note := ""
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Give a worker nothing new for a while",
		Long: "Give a worker nothing new, until swamp worker resume or the end of --for. What it runs goes on. The pause outlives\n" +
			"its connection and a restart of the orchestrator.",
		Example: "  swamp worker pause gpu-1 --for 2h --note \"new driver\"",
		Args:    wants("NAME"),
	}
	cmd.Flags().Var(&optionalValue{Value: &length}, "for", "how long; without it, until it is resumed")
	cmd.Flags().StringVar(&note, "note", "", "why, for those who look at it; at most 255 bytes of `TEXT`")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		w, err := answer[*messages.WorkerItem](a.ask(cmd.Context(), from, messages.VerbWorkerPause,
			&messages.WorkerPauseParams{Name: args[0], Note: note, ForMs: messages.Milliseconds(length.d)}, true))
		if err != nil {
			return err
		}
		text := "is paused"
		if length.d > 0 {
			text += " for " + formatDuration(length.d)
		}
		if n := len(w.GetActiveDispatchIds()); n > 0 {
			text += fmt.Sprintf(", and finishes %s", steps(n))
		}
		return a.printWish(w, text)
	})
}

func (a *app) workerResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "End the pause of a worker, or take its drain back",
		Long: "End the pause of a worker. A drain that was asked for by swamp worker drain is taken back, as long as the worker has\n" +
			"something in flight; one that it began by itself is not.",
		Example: "  swamp worker resume gpu-1",
		Args:    wants("NAME"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		w, err := answer[*messages.WorkerItem](a.ask(cmd.Context(), from, messages.VerbWorkerResume,
			&messages.WorkerResumeParams{Name: args[0]}, true))
		if err != nil {
			return err
		}
		return a.printWish(w, "is "+w.GetStatus())
	})
}

// printWish prints what has become of a wish about a worker.
func (a *app) printWish(w *messages.WorkerItem, text string) error {
	if a.json() {
		return printShape(a.host.Stdout, w)
	}
	_, err := fmt.Fprintf(a.host.Stdout, "%s %s\n", oneLine(w.GetName()), text)
	return err
}
