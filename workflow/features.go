package workflow

// feature is a part of the language that the orchestrator has to know how to carry out.
type feature string

const (
	featureConditions  feature = "conditions other than 'succeeded'"
	featureInputs      feature = "'inputs'"
	featureOutputs     feature = "'outputs'"
	featureExprs       feature = "expressions"
	featureForEach     feature = "'forEach'"
	featureGuard       feature = "'guard'"
	featureAllow       feature = "'allowFailure'"
	featureRetry       feature = "'retry'"
	featureStop        feature = "'stop'"
	featureWorkingDir  feature = "'workingDir'"
	featureShell       feature = "'shell'"
	featureConcurrency feature = "'concurrency'"
	featureGroups      feature = "concurrency groups"
	featureAffinity    feature = "'affinity'"
	featurePrefer      feature = "'prefer'"
	featureSpread      feature = "'spread'"
	featurePriority    feature = "'priority'"
	featureNested      feature = "tasks of type 'workflow'"
	featureApproval    feature = "tasks of type 'manual_approval'"
	featureAssert      feature = "tasks of type 'assert'"
	featureArgs        feature = "inputs of methods that are lists or maps"
)

// notRun lists what the language has and this version does not carry out. A file that uses it is refused: a step that ran
// without its guard, or once instead of for each, would do what nobody asked for. A feature leaves the list in the change
// that makes the orchestrator run it.
func notRun() []feature {
	return []feature{
		featureInputs, featureOutputs, featureExprs, featureForEach, featureGuard, featureRetry,
		featureStop, featureWorkingDir, featureShell, featureConcurrency, featureGroups, featureAffinity, featurePrefer,
		featureSpread, featurePriority, featureNested, featureApproval, featureAssert, featureArgs,
	}
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
