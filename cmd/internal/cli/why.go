package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why RUN|STEP|WORKER [STEP]",
		Short: "Explain why a run, a step or a worker does what it does, or nothing",
		Long: "Explain in one paragraph why a run, a step or a worker does what it does, or nothing: what it waits for, which workers come\n" +
			"near and what each lacks, what it would take; who has it, since when, and how long its worker may still stay away; why a\n" +
			"worker has nothing to do; how it ended. The reasons are those of the code that decided. A step is RUN/JOB/STEP, RUN/STEP\n" +
			"or RUN STEP.",
		Example: "  swamp why 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f\n  swamp why 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f train/fit\n  swamp why gpu-1",
		Args:    wants("RUN|STEP|WORKER", "[STEP]"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		why, err := answer[*messages.WhyResult](a.ask(cmd.Context(), from, messages.VerbWhy, &messages.WhyParams{Subject: strings.Join(args, "/")}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, why)
		}
		_, err = fmt.Fprintln(a.host.Stdout, oneLine(why.GetText()))
		return err
	})
}
