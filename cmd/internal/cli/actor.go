package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) actorCommand() *cobra.Command {
	return a.group("actor", "Look inside the actor system", a.actorTreeCommand(), a.actorInspectCommand(), a.actorWatchCommand(), a.actorTraceCommand(), a.actorTopCommand())
}

func (a *app) actorTreeCommand() *cobra.Command {
	var kind, state string
	var least int
	cmd := &cobra.Command{
		Use:   "tree [PID]",
		Short: "Show the living actors, or those below one",
		Long: "Show the living actors, or one and those below it. A PID may be given without the root's name, or by its end where only\n" +
			"one ends so. Steps that wait in line, and runs that do nothing else, take no memory: they are shown all the same.",
		Example: "  swamp actor tree\n  swamp actor tree runs --kind step --state running\n  swamp actor tree --min-mailbox 1",
		Args:    wants("[PID]"),
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "", "only actors of this `KIND`, such as run or lease")
	flags.StringVar(&state, "state", "", "only actors in this `STATE`, such as queued")
	flags.IntVar(&least, "min-mailbox", 0, "only actors with at least `N` messages waiting")
	a.addFormat(flags)
	a.addClient(flags)
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		if least < 0 {
			return usagef("invalid value of %s: %d is below 0", from.name("min-mailbox"), least)
		}
		params := &messages.ActorTreeParams{Below: strings.Join(args, ""), Kind: kind, State: state, MinMailbox: int32(min(least, math.MaxInt32))}
		tree := &messages.ActorTreeResult{}
		for {
			page, err := answer[*messages.ActorTreeResult](a.ask(cmd.Context(), from, messages.VerbActorTree, params, true))
			if err != nil {
				return err
			}
			tree.Items = append(tree.Items, page.GetItems()...)
			if page.Cursor == nil {
				break
			}
			params = &messages.ActorTreeParams{Cursor: page.GetCursor()}
		}
		tree.Count = int32(len(tree.Items))
		if a.json() {
			return printShape(a.host.Stdout, tree)
		}
		if tree.GetCount() == 0 {
			fmt.Fprintln(a.host.Stderr, "no actor is like that")
			return nil
		}
		return a.printActors(tree.GetItems())
	})
}

func (a *app) printActors(items []*messages.ActorItem) error {
	t := table{columns: []string{"ACTOR", "KIND", "STATE", "MAILBOX", "PROCESSED", "RESTARTS", "LAST MESSAGE", "AGO", "AGE"}, paint: paintStatus(2)}
	known := map[string]bool{}
	now := a.host.Now()
	for _, actor := range items {
		known[actor.GetPid()] = true
		t.add(indented(actor.GetPid(), known), actor.GetKind(), orDash(actor.GetState()), fmt.Sprint(actor.GetMailbox()),
			fmt.Sprintf("%.0f", actor.GetProcessed()), fmt.Sprint(actor.GetRestarts()), orDash(actor.GetLastMessage()),
			strings.TrimSuffix(ago(now, actor.GetLastMessageAt()), " ago"), strings.TrimSuffix(ago(now, actor.GetStartedAt()), " ago"))
	}
	return t.write(a.host.Stdout, a.host.color())
}

// indented writes an actor below its parent, where the parent stands above it: without what the parent says already.
func indented(pid string, known map[string]bool) string {
	depth, rest := 0, pid
	for i, c := range pid {
		if c == '/' && known[pid[:i]] {
			depth, rest = depth+1, pid[i+1:]
		}
	}
	return strings.Repeat("  ", depth) + rest
}
