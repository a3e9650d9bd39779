package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxInstances bounds what one template becomes.
const maxInstances = 100_000

// Instance is one of a template's: the template with an item. It shares everything else with it.
type Instance struct {
	// Name is unique among the steps of the job.
	Name string
	// Item is what self.<item> is: of a list an element, of a map {key, value}.
	Item any
}

// Expand makes the instances of a template that is ready, in the order of the list, or of the keys of the map. The scope
// has no item. The same values make the same instances; where an expression asks the world they are not the same again, so
// a run keeps what it got. Names are those that the template's name gives for each item, or the template's name with the
// value: the index of a list or map in a list, and the key in a map. Two of the same name are an error, and so is one that
// another step of the job has.
func (p *Plan) Expand(step int, scope Scope) ([]Instance, error) {
	s := &p.Steps[step]
	scope.plan, scope.Item = p, nil
	v, err := s.ForEach.in.eval(&scope)
	if err != nil {
		return nil, fmt.Errorf("forEach: %w", err)
	}
	var all []Instance
	switch v := v.(type) {
	case []any:
		all = make([]Instance, 0, len(v))
		for i, item := range v {
			all = append(all, Instance{Name: suffix(item, i), Item: item})
		}
	case map[string]any:
		all = make([]Instance, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, Instance{Name: key, Item: map[string]any{"key": key, "value": v[key]}})
		}
	default:
		return nil, fmt.Errorf("forEach: 'in' gives %s, not a list or a map", typeName(v))
	}
	if len(all) > maxInstances {
		return nil, fmt.Errorf("forEach: %d items: at most %d", len(all), maxInstances)
	}
	if err := p.nameInstances(step, all, &scope); err != nil {
		return nil, err
	}
	return all, nil
}

// suffix is what tells an instance apart if the template's name does not.
func suffix(item any, index int) string {
	switch item.(type) {
	case string, bool, int64, float64:
		text, err := textOf(item)
		if err == nil {
			return text
		}
	}
	return strconv.Itoa(index)
}

// nameInstances gives the instances their names; so far they have what tells them apart.
func (p *Plan) nameInstances(step int, all []Instance, scope *Scope) error {
	s := &p.Steps[step]
	job := p.Jobs[s.Job].Name
	seen := make(map[string]int, len(all))
	for i := range all {
		in := &all[i]
		if s.ForEach.name == nil {
			in.Name = s.Name + "-" + in.Name
		} else {
			scope.Item = in.Item
			name, err := s.ForEach.name.text(scope)
			if err != nil {
				return fmt.Errorf("the name of item %d: %w", i, err)
			}
			in.Name = name
		}
		other, twice := seen[in.Name]
		o, taken := p.Ordinal(job, in.Name)
		switch {
		case strings.TrimSpace(in.Name) == "":
			return fmt.Errorf("the name of item %d is empty", i)
		case len(in.Name) > maxName || !isPrintable(in.Name):
			return fmt.Errorf("the name of item %d, %s: a name is printable and has at most %d bytes: give the step a name with an expression",
				i, quote(in.Name), maxName)
		case twice:
			return fmt.Errorf("items %d and %d have the same name %s: give the step a name with an expression that tells them apart",
				other, i, quote(in.Name))
		case taken && o != step:
			return fmt.Errorf("the name of item %d, %s, is that of another step of the job", i, quote(in.Name))
		}
		seen[in.Name] = i
	}
	return nil
}
