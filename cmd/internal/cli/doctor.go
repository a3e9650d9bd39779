package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.group("doctor", "Look for what is wrong", a.doctorBooksCommand())
}

func (a *app) doctorBooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "books",
		Short: "Check that steps, leases, slots and queue agree",
		Long: "Check that steps, leases, slots and queue agree. It looks twice, two seconds apart, and shows what both times was\n" +
			"wrong. The exit code is 0 if nothing was, else 1.",
		Example: "  swamp doctor books",
		Args:    wants(),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		books, err := answer[*messages.DoctorBooksResult](a.ask(cmd.Context(), from, messages.VerbDoctorBooks, &messages.DoctorBooksParams{}, true))
		if err != nil {
			return err
		}
		if err := a.printBooks(books); err != nil {
			return err
		}
		if len(books.GetItems()) > 0 {
			return errFailed
		}
		return nil
	})
}

func (a *app) printBooks(books *messages.DoctorBooksResult) error {
	if a.json() {
		return printShape(a.host.Stdout, books)
	}
	if len(books.GetItems()) == 0 {
		_, err := fmt.Fprintln(a.host.Stdout, "the books agree")
		return err
	}
	t := table{columns: []string{"KIND", "ID", "WHAT IS WRONG"}}
	for _, f := range books.GetItems() {
		t.add(f.GetKind(), f.GetId(), f.GetText())
	}
	return t.write(a.host.Stdout, a.host.color())
}
