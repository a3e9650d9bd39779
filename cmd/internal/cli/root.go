package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one call of one of the programs.
type app struct {
	host    *Host
	program Program
	// ran: cobra found nothing wrong with the arguments.
	ran bool
	// client holds the flags that the commands of a client share; format is theirs too.
	client clientFlags
	format choiceValue
}

// Run runs a program on a host and returns its exit code.
func Run(ctx context.Context, p Program, h *Host) int {
	a := &app{host: h, program: p, format: choiceValue{"log", []string{"log", "json"}}}
	root := a.root()
	root.SetArgs(h.Args)
	root.SetOut(h.Stdout)
	root.SetErr(h.Stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.ran {
		err = &usageError{oneLine(err.Error())}
	}
	printError(h, string(p), err)
	return exitCode(err)
}

// root returns the command tree of the program.
func (a *app) root() *cobra.Command {
	var root *cobra.Command
	switch a.program {
	case Swampd:
		root = a.serveCommand("swampd")
		root.AddCommand(a.backupCommand(), a.restoreCommand(), a.checkCommand())
	case SwampWorker:
		root = a.connectCommand("swamp-worker")
	default:
		root = a.swampCommand()
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	for _, cmd := range all(root) {
		describeHelp(cmd)
	}
	return root
}

func (a *app) swampCommand() *cobra.Command {
	commands := []*cobra.Command{
		a.workflowCommand(),
		a.runCommand(),
		a.workerCommand(),
		a.actorCommand(),
		a.whyCommand(),
		a.doctorCommand(),
		a.dataCommand(),
	}
	if a.host.Engine != nil { // the program of a worker has none, also where it is called as swamp
		commands = append([]*cobra.Command{a.devCommand()}, append(commands, a.serveCommand("serve"))...)
	}
	root := a.group("swamp", "Run workflows on a fleet of disposable workers",
		append(commands, a.versionCommand(), a.completionCommand())...)
	root.Long = "swamp runs workflows, shows the fleet and the queue, and looks inside the actor system.\n\n" +
		"It talks to the orchestrator that --server or SWAMP_SERVER names, with the server token of --server-token or\n" +
		"SWAMP_SERVER_TOKEN; for an orchestrator on this machine it finds the admin token in the default data directory."
	return root
}

// group is a command that only holds others.
func (a *app) group(use, short string, children ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short}
	group.AddCommand(children...)
	group.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %s", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf(": do you mean %s?", strings.Join(near, " or "))
		}
		return fmt.Errorf("%s See %s --help", text+period(text), cmd.CommandPath())
	}
	group.SuggestionsMinimumDistance = 2
	group.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.HasParent() {
			names := make([]string, 0, len(children))
			for _, child := range children {
				names = append(names, child.Name())
			}
			return fmt.Errorf("%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
		}
		a.ran = true
		return cmd.Help()
	}
	return group
}

func period(text string) string {
	if strings.HasSuffix(text, "?") {
		return ""
	}
	return "."
}

// all returns a command and everything below it.
func all(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, child := range cmd.Commands() {
		list = append(list, all(child)...)
	}
	return list
}

// describeHelp adds the flag --help in our words, so that cobra does not add it in its own.
func describeHelp(cmd *cobra.Command) {
	if cmd.Flags().Lookup("help") == nil {
		cmd.Flags().BoolP("help", "h", false, "show this help")
	}
}

// addFormat adds --output to a command that prints.
func (a *app) addFormat(flags *pflag.FlagSet) {
	flags.Var(&a.format, "output", "what to print: lines for people, or JSON")
}

func (a *app) json() bool { return a.format.value == "json" }
