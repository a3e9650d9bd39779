package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

func (a *app) workflowCommand() *cobra.Command {
	return a.group("workflow", "Run and check workflow files", a.workflowRunCommand(), a.workflowValidateCommand(),
		a.workflowSchemaCommand(), a.workflowGraphCommand())
}

func (a *app) workflowValidateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a workflow file",
		Long: "Check a workflow file, without an orchestrator. Each mistake is one line that begins with FILE:LINE:COLUMN, and\n" +
			"the exit code is 2.",
		Example: "  swamp workflow validate fleet.yaml",
		Args:    wants("FILE"),
	}
	a.addFormat(cmd.Flags())
	return a.command(cmd, func(_ *cobra.Command, args []string, _ settings) error {
		_, plan, err := a.readWorkflow(args[0])
		if err != nil {
			return err
		}
		result := &messages.WorkflowValidateResult{Name: plan.Name, Jobs: int32(len(plan.Jobs)), Steps: int32(len(plan.Steps))}
		if a.json() {
			for _, w := range plan.Warnings {
				result.Warnings = append(result.Warnings, w.String())
			}
			return printShape(a.host.Stdout, result)
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s is valid: %s, %s, %s\n", args[0], plan.Name,
			plural(int(result.GetJobs()), "job"), plural(int(result.GetSteps()), "step"))
		return err
	})
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// readWorkflow reads and parses a file. Warnings go to standard error.
func (a *app) readWorkflow(file string) ([]byte, *workflow.Plan, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, usagef("read the workflow: %v", err)
	}
	plan, err := workflow.Parse(file, source)
	if wrong, ok := errors.AsType[workflow.Diagnoses](err); ok {
		input := &inputError{detail: wrong.Detail()}
		for _, d := range wrong {
			input.lines = append(input.lines, d.String())
		}
		return nil, nil, input
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", file, err)
	}
	for _, w := range plan.Warnings {
		fmt.Fprintln(a.host.Stderr, safeText("warning: "+w.String()))
	}
	return source, plan, nil
}

func (a *app) workflowRunCommand() *cobra.Command {
	detach := false
	patience := durationValue{d: followPatience}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a workflow and follow it to its end",
		Long: "Run a workflow and follow it to its end. On a terminal that is a live view of jobs and steps, else lines.\n\n" +
			"Ctrl-C cancels the run and waits until it has ended; a second one leaves at once. A lost connection is made\n" +
			"again, and the run goes on meanwhile. Exit: 0 the run succeeded, 1 it did not, 2 the file is invalid, 3 the\n" +
			"orchestrator cannot be reached, 130 interrupted.",
		Example: "  swamp workflow run fleet.yaml\n" +
			"  id=$(swamp workflow run fleet.yaml --detach)\n" +
			"  swamp workflow run fleet.yaml --output json",
		Args: wants("FILE"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&detach, "detach", false, "print the run's id and end as soon as the run is safe with the orchestrator")
	addPatience(cmd, &patience)
	a.addFormat(flags)
	a.addClient(flags)
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		source, plan, err := a.readWorkflow(args[0])
		if err != nil {
			return err
		}
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a run id: %w", err)
		}
		submit := &messages.WorkflowRunParams{RunId: id.String(), File: args[0], Source: string(source)}
		if detach {
			return a.submit(cmd.Context(), c, submit, patience.d)
		}
		view := &runView{}
		view.seedPlan(plan)
		return a.runToEnd(cmd.Context(), c, submit, a.printer(view), patience.d)
	})
}

func addPatience(cmd *cobra.Command, patience *durationValue) {
	cmd.Flags().Var(patience, "server-timeout", "how long to try to reach an orchestrator that is gone")
}

// submit hands a run over without following it. A submit that may have arrived is repeated: the same id is the same run.
func (a *app) submit(ctx context.Context, c *client, submit *messages.WorkflowRunParams, patience time.Duration) error {
	f := newFollower(c, patience)
	f.unsent = dialPatience // nobody waits for a run that was never handed over
	f.note = func(text string) { fmt.Fprintln(a.host.Stderr, text) }
	f.request = func(position) (messages.Verb, proto.Message) { return messages.VerbWorkflowRun, submit }
	if _, err := f.run(ctx); err != nil {
		return serverDiagnoses(err)
	}
	if a.json() {
		_, err := fmt.Fprintf(a.host.Stdout, "{\"runId\":%q}\n", submit.GetRunId())
		return err
	}
	_, err := fmt.Fprintln(a.host.Stdout, submit.GetRunId())
	return err
}

// serverDiagnoses gives what an orchestrator found wrong with a file the form that the local parse gives it.
func serverDiagnoses(err error) error {
	if fault, ok := errors.AsType[*messages.Fault](err); ok && fault.Code == messages.CodeInvalid && len(fault.Details) > 0 {
		return &inputError{lines: fault.Details}
	}
	return err
}

// printer makes the printer that fits where standard output goes.
func (a *app) printer(view *runView) printer {
	if a.json() {
		return &jsonPrinter{a.host.Stdout, a.host.Stderr}
	}
	if _, _, terminal := a.host.Terminal(); terminal {
		if kind, _ := a.host.env("TERM"); kind != "dumb" {
			return newLivePrinter(a.host, view)
		}
	}
	return newLinePrinter(a.host.Stdout, a.host.Stderr, a.host.Now, view)
}

// runToEnd submits a run and follows it.
func (a *app) runToEnd(ctx context.Context, c *client, submit *messages.WorkflowRunParams, show printer, patience time.Duration) error {
	submit.Follow = true
	f := newFollower(c, patience)
	f.note, f.event = show.note, show.event
	f.request = func(at position) (messages.Verb, proto.Message) {
		if at.seq == 0 {
			return messages.VerbWorkflowRun, submit
		}
		return messages.VerbRunWatch, &messages.RunWatchParams{RunId: submit.GetRunId(), AfterSeq: at.seq, Output: at.cursors()}
	}
	i := &interruptible{app: a, client: c, follower: f, show: show, run: submit.GetRunId(), cancels: true}
	return i.toEnd(ctx)
}
