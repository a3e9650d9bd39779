package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// Exit codes. Scripts depend on them.
const (
	ExitOK          = 0   // done; for a worker: it left on purpose
	ExitFailed      = 1   // the run or the command failed; for a worker: an error, refused for good, or forced
	ExitUsage       = 2   // wrong usage or invalid input
	ExitUnreachable = 3   // the orchestrator cannot be reached
	ExitInterrupted = 130 // interrupted by a signal
)

// Sentinels for ends that have been told already: nothing more is printed.
var (
	errFailed      = errors.New("failed")      // ExitFailed
	errInterrupted = errors.New("interrupted") // ExitInterrupted
)

// usageError is wrong usage: a sentence that names the flag, the variable or the argument.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// inputError is an invalid file: a line for each mistake, each beginning with its place. For a person who watches,
// detail shows the places too.
type inputError struct {
	lines  []string
	detail string
}

func (e *inputError) Error() string { return strings.Join(e.lines, "\n") }

// unreachableError says that there is no orchestrator to talk to.
type unreachableError struct {
	server string
	err    error
	// permanent: trying again cannot help, such as a certificate that nobody trusts.
	permanent bool
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("the orchestrator at %s cannot be reached: %v", e.server, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	case isType[*usageError](err), isType[*inputError](err):
		return ExitUsage
	case isType[*unreachableError](err), errors.Is(err, worker.ErrUnreachable):
		return ExitUnreachable
	}
	if fault, ok := errors.AsType[*messages.Fault](err); ok {
		switch fault.Code {
		case messages.CodeInvalid:
			return ExitUsage
		case messages.CodeNotReady, messages.CodeNotLeader, messages.CodeUnavailable:
			return ExitUnreachable
		default:
			return ExitFailed
		}
	}
	return ExitFailed
}

// printError writes what a person has to know of an error that ends the program, one line for each thing wrong.
func printError(h *Host, program string, err error) {
	w := h.Stderr
	if err == nil || errors.Is(err, errFailed) || errors.Is(err, errInterrupted) {
		return
	}
	if input, ok := errors.AsType[*inputError](err); ok {
		if input.detail != "" && h.StderrTerminal() {
			fmt.Fprint(w, safeText(input.detail))
			return
		}
		for _, line := range input.lines {
			fmt.Fprintln(w, safeText(line))
		}
		return
	}
	fmt.Fprintf(w, "%s: %s\n", program, oneLine(err.Error()))
	if fault, ok := errors.AsType[*messages.Fault](err); ok {
		for _, detail := range fault.Details {
			fmt.Fprintf(w, "%s: %s\n", program, oneLine(detail))
		}
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
