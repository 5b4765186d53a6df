package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// catalogue is what the kubelet itself knows of its configuration.
type catalogue struct {
	Types    map[string]string `json:"types"`    // Go types by path: reservedMemory, reservedMemory.numaNode
	Defaults map[string]any    `json:"defaults"` // of a file that names no field
	Flags    []flagEffect      `json:"flags"`
}

// flagEffect is what a flag does: given twice with these texts it sets these fields.
type flagEffect struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Texts  []string       `json:"texts"`
	Fields map[string]any `json:"fields"`
}

// flagTexts are values for each type of flag that differ from every default; more than one choice where types share a name.
var flagTexts = map[string][][]string{
	"int32":                              {{"41", "42"}},
	"int64":                              {{"43", "44"}},
	"duration":                           {{"71s", "1h12m"}},
	"ip":                                 {{"10.1.1.1", "10.1.1.2"}},
	"string":                             {{"one", "two"}},
	"stringSlice":                        {{"a,b", "c"}},
	"mapStringString":                    {{"a=1,b=2", "b=3"}, {"a<1,b<2", "b<3"}},
	"mapStringBool":                      {{"NodeLogQuery=true", "AllAlpha=false"}},
	"quantity":                           {{"64Ki", "128Ki"}},
	"Level":                              {{"3", "4"}},
	"pattern=N,...":                      {{"a=1,b=2", "c=3"}},
	"reserved-memory":                    {{"0:memory=1Gi", "1:memory=2Gi,hugepages-1Gi=1Gi"}},
	"[]v1.Taint":                         {{"a=b:NoSchedule", "c:NoExecute"}},
	"colonSeparatedMultimapStringString": {{"A:1,A:2", "B:3"}},
}

func runFields(_ []string, _ io.Reader, out io.Writer) error {
	found := catalogue{Types: map[string]string{}}
	describe("", reflect.TypeFor[v1beta1.KubeletConfiguration](), found.Types)
	dir, err := os.MkdirTemp("", "kubeletanswers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600); err != nil {
		return err
	}
	kubelet, err := loadConfigFile(path)
	if err != nil {
		return err
	}
	configuration, err := external(kubelet)
	if err != nil {
		return err
	}
	if found.Defaults, err = plain(configuration); err != nil {
		return err
	}
	if found.Flags, err = flagEffects(); err != nil {
		return err
	}
	return write(out, found)
}

// describe lists the Go types of a struct's JSON fields, and of the structs within.
func describe(prefix string, t reflect.Type, types map[string]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			if field.Anonymous && field.Type != reflect.TypeFor[metav1.TypeMeta]() {
				describe(prefix, field.Type, types)
			}
			continue
		}
		path := strings.TrimPrefix(prefix+"."+name, ".")
		text, inner := typeText(field.Type)
		types[path] = text
		if inner != nil {
			describe(path, inner, types)
		}
	}
}

// typeText is a type's name without packages, and the struct in it whose fields are configuration.
func typeText(t reflect.Type) (string, reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		text, inner := typeText(t.Elem())
		return "*" + text, inner
	case reflect.Slice:
		text, inner := typeText(t.Elem())
		return "[]" + text, inner
	case reflect.Map:
		text, inner := typeText(t.Elem())
		return "map[string]" + text, inner
	case reflect.Struct:
		switch t.Name() {
		case "Duration", "Quantity", "QuantityValue", "Time", "TimeOrMetaDuration":
			return strings.TrimSuffix(t.Name(), "Value"), nil
		}
		return "struct", t
	default:
		return t.Kind().String(), nil
	}
}

// flagEffects gives every flag of the configuration its texts and sees which fields change.
func flagEffects() ([]flagEffect, error) {
	before, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	none, err := external(before)
	if err != nil {
		return nil, err
	}
	without, err := plain(none)
	if err != nil {
		return nil, err
	}
	effects := []flagEffect{}
	var failure error
	flagsOf(before).VisitAll(func(f *pflag.Flag) {
		if failure == nil {
			var effect flagEffect
			effect, failure = effectOf(f, without)
			effects = append(effects, effect)
		}
	})
	return effects, failure
}

func flagsOf(kubelet *kubeletconfig.KubeletConfiguration) *pflag.FlagSet {
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // every one of them is deprecated, and says so
	options.AddKubeletConfigFlags(flags, kubelet)
	return flags
}

func effectOf(f *pflag.Flag, without map[string]any) (flagEffect, error) {
	effect := flagEffect{Name: f.Name, Type: f.Value.Type()}
	choices := flagTexts[effect.Type]
	if effect.Type == "bool" {
		choices = [][]string{{map[string]string{"true": "false", "false": "true"}[f.DefValue]}}
	}
	failure := fmt.Errorf("--%s has the type %s, for which flagTexts has nothing", f.Name, effect.Type)
	for _, texts := range choices {
		var kubelet *kubeletconfig.KubeletConfiguration
		if kubelet, failure = withFlag(f.Name, texts); failure != nil {
			continue
		}
		configuration, err := external(kubelet)
		if err != nil {
			return effect, err
		}
		with, err := plain(configuration)
		if err != nil {
			return effect, err
		}
		effect.Texts, effect.Fields = texts, map[string]any{}
		difference("", without, with, effect.Fields)
		return effect, nil
	}
	return effect, failure
}

func withFlag(name string, texts []string) (*kubeletconfig.KubeletConfiguration, error) {
	kubelet, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	flags := flagsOf(kubelet)
	for _, text := range texts {
		if err := flags.Set(name, text); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", name, text, err)
		}
	}
	return kubelet, nil
}

// difference lists the paths at which `after` has another value than `before`.
func difference(prefix string, before, after map[string]any, changed map[string]any) {
	for name, value := range after {
		path := strings.TrimPrefix(prefix+"."+name, ".")
		was, wasMap := before[name].(map[string]any)
		is, isMap := value.(map[string]any)
		if wasMap && isMap {
			difference(path, was, is, changed)
		} else if !reflect.DeepEqual(before[name], value) {
			changed[path] = value
		}
	}
}

// plain is a configuration as JSON has it.
func plain(configuration *v1beta1.KubeletConfiguration) (map[string]any, error) {
	data, err := json.Marshal(configuration)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	return found, json.Unmarshal(data, &found)
}
