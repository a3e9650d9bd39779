package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd := &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print the completion script of a shell: bash, zsh, fish or powershell",
		Example:   "  source <(swamp completion bash)\n  swamp completion zsh > \"${fpath[1]}/_swamp\"",
		ValidArgs: shells,
		Args:      wants("SHELL"),
	}
	return a.command(cmd, func(cmd *cobra.Command, args []string, _ settings) error {
		root, out := cmd.Root(), a.host.Stdout
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(out, true)
		case "zsh":
			return root.GenZshCompletion(out)
		case "fish":
			return root.GenFishCompletion(out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(out)
		default:
			return usagef("invalid SHELL %q: want bash, zsh, fish or powershell", args[0])
		}
	})
}
