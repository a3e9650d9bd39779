package workflow

// feature is a part of the language that the orchestrator has to know how to carry out.
type feature string

const (
	featureConditions feature = "conditions other than 'succeeded'"
)

// notRun lists what the language has and this version does not carry out. A file that uses it is refused: a step that ran
// without its guard, or once instead of for each, would do what nobody asked for. A feature leaves the list in the change
// that makes the orchestrator run it.
func notRun() []feature {
	return []feature{featureConditions}
}

// use is one place that uses a feature.
type use struct {
	feature feature
	at      int
}

// uses notes that the file uses a feature.
func (d *decoder) uses(f feature, at int) {
	if len(d.used) < maxDiagnoses {
		d.used = append(d.used, use{f, at})
	}
}

// refuse reports the uses of the given features.
func (d *decoder) refuse(features []feature) {
	for _, u := range d.used {
		for _, f := range features {
			if u.feature == f {
				d.found.add(u.at, "this version does not run workflows with %s yet", f)
			}
		}
	}
}
