package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) actorCommand() *cobra.Command {
	return a.group("actor", "Look inside the actor system", a.actorTreeCommand())
}

func (a *app) actorTreeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tree [PID]",
		Short:   "Show the living actors, or those below one",
		Example: "  swamp actor tree\n  swamp actor tree runs",
		Args:    wants("[PID]"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		tree, err := answer[*messages.ActorTreeResult](a.ask(cmd.Context(), from, messages.VerbActorTree,
			&messages.ActorTreeParams{Below: strings.Join(args, "")}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, tree)
		}
		t := table{columns: []string{"ACTOR", "KIND", "STATE", "MAILBOX", "PROCESSED", "RESTARTS", "LAST MESSAGE", "AGE"}, paint: paintStatus(2)}
		known := map[string]bool{}
		for _, actor := range tree.GetItems() {
			known[actor.GetPid()] = true
			t.add(indented(actor.GetPid(), known), actor.GetKind(), orDash(actor.GetState()), fmt.Sprint(actor.GetMailbox()),
				fmt.Sprintf("%.0f", actor.GetProcessed()), fmt.Sprint(actor.GetRestarts()), orDash(actor.GetLastMessage()),
				strings.TrimSuffix(ago(a.host.Now(), actor.GetStartedAt()), " ago"))
		}
		return t.write(a.host.Stdout, a.host.color())
	})
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
