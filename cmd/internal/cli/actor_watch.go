package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

// watchStall is how long a line may take to be printed before a lost connection is no wonder: the orchestrator cuts off who
// does not read.
const watchStall = 10 * time.Second

func (a *app) actorWatchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch PID|KIND|RUN",
		Short: "Follow what actors do: commands, transitions, commits and effects",
		Long: "Follow what actors do, as it happens: each command that they take, each change of their state, each commit with what it\n" +
			"holds and how long it took, and each effect. It shows one actor and those below it, all of a kind, or those of a run. What\n" +
			"comes faster than it is read is dropped and counted: the actors never wait. Ctrl-C ends it.",
		Example: "  swamp actor watch scheduler\n  swamp actor watch fleet/gpu-1\n  swamp actor watch 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f --output json",
		Args:    wants("PID|KIND|RUN"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		return a.watchActors(cmd.Context(), c, args[0])
	})
}

func (a *app) watchActors(ctx context.Context, c *client, subject string) error {
	signals, stop := a.host.Notify(append([]os.Signal{os.Interrupt, syscall.SIGTERM}, hangup()...)...)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	ended := make(chan error, 1)
	go func() { // watchActors waits for it; if it is stuck in a write the process ends
		var slowest time.Duration
		_, err := c.stream(ctx, messages.VerbActorWatch, &messages.ActorWatchParams{Subject: subject}, stream{actor: func(e *messages.ActorEvent) error {
			began := a.host.Now()
			err := a.printActorEvent(e)
			slowest = max(slowest, a.host.Now().Sub(began))
			return err
		}})
		switch lost := isType[*lostError](err); {
		case lost && slowest > watchStall:
			err = messages.Faultf(messages.CodeStreamOverflow, "the watch is cut off: what it prints was not read for %s", formatDuration(slowest.Round(time.Second)))
		case lost:
			err = &unreachableError{server: c.shown, err: err}
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-signals:
		leave(errInterrupted)
		within(ended, leaveTimeout)
		return errInterrupted
	}
}

func (a *app) printActorEvent(e *messages.ActorEvent) error {
	if a.json() {
		return printShape(a.host.Stdout, e)
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s ", moment(e.GetAt()))
	switch e.GetKind() {
	case "watching":
		fmt.Fprintf(&line, "watching %s", e.GetPid())
	case "dropped":
		fmt.Fprintf(&line, "… %.0f dropped: they came faster than they were read", e.GetDropped())
	default:
		fmt.Fprintf(&line, "%s %s", e.GetPid(), e.GetKind())
		if e.Command != nil {
			line.WriteString(" " + e.GetCommand())
		}
		switch {
		case e.From != nil:
			fmt.Fprintf(&line, ": %s -> %s", e.GetFrom(), e.GetTo())
		case e.GetKind() == "transition":
			line.WriteString(": -> " + e.GetTo())
		case e.To != nil:
			fmt.Fprintf(&line, ": %s -> %s", e.GetText(), e.GetTo())
		case e.Text != nil:
			line.WriteString(": " + e.GetText())
		}
		if e.TookMs != nil {
			fmt.Fprintf(&line, " (%.1f ms)", e.GetTookMs())
		}
	}
	_, err := fmt.Fprintln(a.host.Stdout, oneLine(line.String()))
	return err
}
