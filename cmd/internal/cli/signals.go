package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// notifySignals is [Host.Notify] of the real machine. A hang-up that was ignored when the program started stays ignored,
// which is what nohup asks for.
func notifySignals(wanted ...os.Signal) (<-chan os.Signal, func()) {
	// Nothing is lost while the reader is busy: two signals are all that any command tells apart, and one more is spare.
	c := make(chan os.Signal, 3)
	for _, s := range wanted {
		if !isHangup(s) || !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// keepOnBrokenPipe lets a write to a closed standard stream fail instead of ending the process: a daemon outlives the
// reader of its log. Unlike ignoring the signal, this is not inherited by the processes of steps.
func keepOnBrokenPipe() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, brokenPipe()...)
	return func() { signal.Stop(c) }
}

// stopSignals end a daemon.
func stopSignals() []os.Signal {
	return append([]os.Signal{os.Interrupt, syscall.SIGTERM}, hangup()...)
}
