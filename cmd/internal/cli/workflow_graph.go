package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/workflow"
)

func (a *app) workflowSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of workflow files, for editors",
		Long: "Print the JSON Schema of workflow files. An editor that knows it completes keys and marks those that are unknown;\n" +
			"'workflow validate' finds more.",
		Example: "  swamp workflow schema > workflow.schema.json",
		Args:    wants(),
	}
	return a.command(cmd, func(*cobra.Command, []string, settings) error {
		schema, err := workflow.Schema()
		if err != nil {
			return fmt.Errorf("make the schema: %w", err)
		}
		_, err = a.host.Stdout.Write(schema)
		return err
	})
}

func (a *app) workflowGraphCommand() *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use:   "graph FILE",
		Short: "Draw what depends on what in a workflow file",
		Long: "Draw the jobs and steps of a workflow file and what they depend on, without an orchestrator: as text, as DOT for\n" +
			"Graphviz, or as an SVG picture.",
		Example: "  swamp workflow graph fleet.yaml\n  swamp workflow graph fleet.yaml --format svg > fleet.svg",
		Args:    wants("FILE"),
	}
	cmd.Flags().StringVar(&format, "format", format, "how to draw it: text, dot or svg")
	return a.command(cmd, func(_ *cobra.Command, args []string, _ settings) error {
		draw := map[string]func(*workflow.Plan) string{
			"text": (*workflow.Plan).Graph, "dot": (*workflow.Plan).GraphDOT, "svg": (*workflow.Plan).GraphSVG,
		}[format]
		if draw == nil {
			return usagef("--format is text, dot or svg, not %q", format)
		}
		_, plan, err := a.readWorkflow(args[0])
		if err != nil {
			return err
		}
		text := draw(plan)
		if format == "text" {
			text = safeText(text)
		}
		_, err = fmt.Fprint(a.host.Stdout, text)
		return err
	})
}
