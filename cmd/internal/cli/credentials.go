package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/swampd/swampd/messages"
)

// The variables that admit to a fleet or to an orchestrator. No step may find them in the environment of a process
// above it, and clearing them in this process does not clear what the system shows of it: hence the new start.
const (
	envWorkerToken = "SWAMP_WORKER_TOKEN"
	envServerToken = "SWAMP_SERVER_TOKEN"
)

// flagTokenFD names the open file that the new start reads the enrollment token from. It is hidden.
const flagTokenFD = "token-fd"

// errNoReexec says that this system cannot replace a process.
var errNoReexec = errors.New("a process cannot be replaced on this system")

// Restart is a new start of this program.
type Restart struct {
	// Args replace the arguments, without the program's name.
	Args []string
	// Env is the whole environment.
	Env []string
	// Secret is handed over where neither arguments nor environment show it.
	Secret messages.Secret
}

// hideCredentials starts the program anew if its environment, or its arguments, show a credential. token is the
// enrollment token to hand over, or empty. It returns where there was nothing to hide; on a system that cannot replace
// a process it clears the variables and returns too.
func (h *Host) hideCredentials(flags *pflag.FlagSet, token messages.Secret) error {
	env, found := withoutCredentials(h.Environ())
	args := h.Args
	if flag := flags.Lookup("token"); flag != nil && flag.Changed {
		found, args = true, withoutFlag(flags, args, "token")
	}
	if !found {
		return nil
	}
	err := h.Reexec(Restart{Args: args, Env: env, Secret: token})
	if !errors.Is(err, errNoReexec) {
		return err
	}
	return errors.Join(os.Unsetenv(envWorkerToken), os.Unsetenv(envServerToken))
}

// withoutCredentials returns the environment without them, and whether there were any.
func withoutCredentials(env []string) (rest []string, found bool) {
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name == envWorkerToken || name == envServerToken {
			found = true
			continue
		}
		rest = append(rest, e)
	}
	return rest, found
}

// withoutFlag returns arguments, which have been parsed well, without a flag and its value.
func withoutFlag(flags *pflag.FlagSet, args []string, drop string) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(rest, args[i:]...)
		}
		name, long := strings.CutPrefix(arg, "--")
		if !long {
			rest = append(rest, arg)
			continue
		}
		name, _, joined := strings.Cut(name, "=")
		length := 1
		if flag := flags.Lookup(name); flag != nil && !joined && flag.NoOptDefVal == "" {
			length = 2
		}
		if name != drop {
			rest = append(rest, args[i:min(i+length, len(args))]...)
		}
		i += length - 1
	}
	return rest
}

// readTokenFD reads the token that the start before this one handed over.
func readTokenFD(fd int) (messages.Secret, error) {
	file := os.NewFile(uintptr(fd), "token")
	if fd < 3 || file == nil {
		return "", usagef("invalid --%s %d: it is for the program itself", flagTokenFD, fd)
	}
	data, err := io.ReadAll(io.LimitReader(file, 1<<16))
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("read the token from the start before this one: %w", err)
	}
	return messages.Secret(strings.TrimSpace(string(data))), nil
}
