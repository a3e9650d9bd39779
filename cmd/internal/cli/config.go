package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// annotationEnv is the annotation of a flag that lists its variables: the first is the documented one.
const annotationEnv = "swamp_env"

// variableSetter is a flag value whose variable is written otherwise than the flag.
type variableSetter interface {
	setVariable(string) error
}

// source is where the value of a flag came from.
type source string

// The sources.
const (
	fromFlag    source = "flag"
	fromDefault source = "default"
	// A variable is its own name.
)

// settings remembers where the values of a command's flags came from.
type settings map[string]source

// given tells whether somebody chose the value of a flag.
func (s settings) given(name string) bool { return s[name] != fromDefault && s[name] != "" }

// name returns how a person finds a flag's value: by the flag, or by its variable.
func (s settings) name(flag string) string {
	if from := s[flag]; from != fromFlag && s.given(flag) {
		return string(from)
	}
	return "--" + flag
}

// bindEnv says which variables stand for a flag.
func bindEnv(flags *pflag.FlagSet, name string, variables ...string) {
	flag := flags.Lookup(name)
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[annotationEnv] = variables
	flag.Usage += " [$" + variables[0] + "]"
}

// bindAllEnv gives each flag that has none a variable: the prefix and the flag's name.
func bindAllEnv(flags *pflag.FlagSet, prefix string, except ...string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[annotationEnv] == nil && !slices.Contains(except, f.Name) {
			bindEnv(flags, f.Name, prefix+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		}
	})
}

// resolve gives each flag that was not set the value of its variable, if that is set.
func resolve(h *Host, flags *pflag.FlagSet) (settings, error) {
	from := settings{}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		from[f.Name] = fromDefault
		if f.Changed {
			from[f.Name] = fromFlag
			return
		}
		for _, variable := range f.Annotations[annotationEnv] {
			value, ok := h.env(variable)
			if !ok {
				continue
			}
			set := f.Value.Set
			if v, ok := f.Value.(variableSetter); ok {
				set = v.setVariable
			}
			if err := set(value); err != nil && failed == nil {
				if isSecret(f) {
					value = "***"
				}
				failed = usagef("invalid value %q of the variable %s: %v", value, variable, err)
			}
			from[f.Name] = source(variable)
			return
		}
	})
	return from, failed
}

func isSecret(f *pflag.Flag) bool {
	_, ok := f.Value.(*secretValue)
	return ok
}

// printConfig shows each value and where it came from. A variable is named, as one that was forgotten in a profile is
// what people look for.
func printConfig(w io.Writer, flags *pflag.FlagSet, from settings) error {
	t := table{columns: []string{"NAME", "VALUE", "FROM"}}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == flagPrintConfig {
			return
		}
		t.add(f.Name, orDash(f.Value.String()), string(from[f.Name]))
	})
	return t.write(w, false)
}

const flagPrintConfig = "print-config"

// command finishes a command whose RunE gets its resolved settings. Whatever cobra finds wrong before is wrong usage.
func (a *app) command(cmd *cobra.Command, run func(cmd *cobra.Command, args []string, from settings) error) *cobra.Command {
	cmd.Flags().SortFlags = false
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.ran = true
		from, err := resolve(a.host, cmd.Flags())
		if err != nil {
			return err
		}
		if show := cmd.Flags().Lookup(flagPrintConfig); show != nil && show.Value.String() == "true" {
			return printConfig(a.host.Stdout, cmd.Flags(), from)
		}
		return run(cmd, args, from)
	}
	return cmd
}

// wants checks the number of arguments; names of optional ones stand in brackets.
func wants(names ...string) cobra.PositionalArgs {
	least := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			least++
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return fmt.Errorf("%s is missing: %s", names[len(args)], cmd.UseLine())
		}
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}
