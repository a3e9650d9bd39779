package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
)

func (a *app) tokenCommand() *cobra.Command {
	return a.group("token", "Admit machines to the fleet", a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
}

func (a *app) tokenCreateCommand() *cobra.Command {
	duration := durationValue{d: 24 * time.Hour, min: time.Millisecond}
	machines := countValue{n: 1, min: 1, max: 1<<31 - 1, word: "unlimited", wordIs: -1}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an enrollment token, which is shown only now",
		Long: "Make an enrollment token, and print it: it is shown only now. A token that admits one machine gives its name to\n" +
			"the worker; one for several gives the beginning of their names.",
		Example: "  swamp worker token create gpu-1 --duration 7d > token\n" +
			"  swamp worker token create spot --max-enrollments unlimited",
		Args: wants("NAME"),
	}
	cmd.Flags().Var(&duration, "duration", "how long it admits machines")
	cmd.Flags().Var(&machines, "max-enrollments", "how many machines it admits")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		result, err := answer[*messages.WorkerTokenCreateResult](a.ask(cmd.Context(), from, messages.VerbWorkerTokenCreate, &messages.WorkerTokenCreateParams{
			Name: args[0], DurationMs: messages.Milliseconds(duration.d), MaxEnrollments: int32(machines.n),
		}, false))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, result)
		}
		// The token alone is data: a shell can catch it.
		if _, err := fmt.Fprintln(a.host.Stdout, result.GetToken()); err != nil {
			return err
		}
		fmt.Fprintf(a.host.Stderr, "token %s admits %s until %s; it is shown only now\n", result.GetName(),
			admits(result.GetMaxEnrollments()), clock(a.host.Now(), result.GetExpiresAt()))
		return nil
	})
}

// allowance is how many machines a token admits.
func allowance(v *structpb.Value) string {
	if word := v.GetStringValue(); word != "" {
		return word
	}
	return strconv.FormatFloat(v.GetNumberValue(), 'f', -1, 64)
}

func admits(v *structpb.Value) string {
	switch n := allowance(v); n {
	case "unlimited":
		return "any number of machines"
	case "1":
		return "1 machine"
	default:
		return n + " machines"
	}
}

func (a *app) tokenListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List enrollment tokens and the machines that they admitted",
		Example: "  swamp worker token list",
		Args:    wants(),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		tokens, err := answer[*messages.WorkerTokenListResult](
			a.ask(cmd.Context(), from, messages.VerbWorkerTokenList, &messages.WorkerTokenListParams{}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, tokens)
		}
		if len(tokens.GetItems()) == 0 {
			fmt.Fprintln(a.host.Stderr, "no tokens yet: make one with swamp worker token create NAME")
			return nil
		}
		t := table{columns: []string{"NAME", "STATE", "ENROLLMENTS", "EXPIRES", "CREATED", "WORKERS"}, paint: paintStatus(1)}
		for _, token := range tokens.GetItems() {
			var workers []string
			for _, b := range token.GetBindings() {
				workers = append(workers, b.GetWorker())
			}
			t.add(token.GetName(), token.GetState(), fmt.Sprintf("%d/%s", len(workers), allowance(token.GetMaxEnrollments())),
				until(a.host.Now(), token.GetExpiresAt()), clock(a.host.Now(), token.GetCreatedAt()), orDash(strings.Join(workers, " ")))
		}
		return t.write(a.host.Stdout, a.host.color())
	})
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Take a token back: its workers are disconnected, what they run is killed",
		Example: "  swamp worker token revoke gpu-1",
		Args:    wants("NAME"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		result, err := answer[*messages.WorkerTokenRevokeResult](a.ask(cmd.Context(), from, messages.VerbWorkerTokenRevoke,
			&messages.WorkerTokenRevokeParams{Name: args[0]}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, result)
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s: %s\n", result.GetName(), result.GetState())
		return err
	})
}
