package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/swampd/swampd/worker"
)

// lifeFlags say when a worker leaves by itself, and how it leaves.
type lifeFlags struct {
	dispatches          countValue
	idle, uptime, drain durationValue
	mode                choiceValue
}

func newLifeFlags() *lifeFlags {
	least := durationValue{min: time.Millisecond}
	f := &lifeFlags{dispatches: countValue{min: 1, max: 1<<31 - 1}, idle: least, uptime: least, drain: least}
	for _, mode := range worker.AllDrainModes() {
		f.mode.from = append(f.mode.from, string(mode))
	}
	f.mode.value = f.mode.from[0]
	return f
}

func (f *lifeFlags) add(flags *pflag.FlagSet) {
	flags.Var(&optionalValue{Value: &f.dispatches}, "max-dispatches", "drain when that many steps have ended; no more than that are taken")
	flags.Var(&optionalValue{Value: &f.idle}, "idle-timeout", "drain after so long without a step, while enrolled")
	flags.Var(&optionalValue{Value: &f.uptime}, "max-uptime", "drain at that age")
	flags.Var(&optionalValue{Value: &f.drain}, "drain-timeout", "how long a drain may take, whatever still runs; without it, as long as it takes")
	flags.Var(&f.mode, "drain-mode", "what happens to steps at the end of that time: they are given back to the queue, cancelled, or may finish")
}

// optionalValue is a flag that means nothing unless it is given.
type optionalValue struct {
	pflag.Value

	given bool
}

func (v *optionalValue) Set(s string) error {
	if err := v.Value.Set(s); err != nil {
		return err
	}
	v.given = true
	return nil
}

func (v *optionalValue) String() string {
	if !v.given {
		return ""
	}
	return v.Value.String()
}
