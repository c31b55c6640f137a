package mcmanager

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// memberOptions returns how the clusters of members are made: what the options of the manager say of caches and clients
// holds for them too, and what the fleet's options say comes after that.
func memberOptions(opts Options, own func(fleet.Member) []cluster.Option) (func(fleet.Member) []cluster.Option, error) {
	if err := boundToTheLocalCluster(opts); err != nil {
		return nil, err
	}
	inherit := func(o *cluster.Options) {
		transform := o.Cache.DefaultTransform
		o.Cache, o.NewCache = opts.Cache, opts.NewCache
		if o.Cache.DefaultTransform == nil {
			o.Cache.DefaultTransform = transform
		}
		o.Client, o.NewClient = opts.Client, opts.NewClient
	}
	return func(m fleet.Member) []cluster.Option {
		all := []cluster.Option{inherit}
		if own != nil {
			all = append(all, own(m)...)
		}
		return all
	}, nil
}

// boundToTheLocalCluster returns an error for options that connect caches or clients with one cluster.
func boundToTheLocalCluster(opts Options) error {
	var errs []error
	for name, set := range map[string]bool{
		"Cache.HTTPClient":    opts.Cache.HTTPClient != nil,
		"Cache.Mapper":        opts.Cache.Mapper != nil,
		"Client.HTTPClient":   opts.Client.HTTPClient != nil,
		"Client.Mapper":       opts.Client.Mapper != nil,
		"Client.Cache.Reader": opts.Client.Cache != nil && opts.Client.Cache.Reader != nil,
	} {
		if set {
			errs = append(errs, fmt.Errorf("the option %s is about one cluster and would apply to every member: "+
				"set it for the local cluster by NewCache or NewClient, and for members by fleet.Options.ClusterOptions", name))
		}
	}
	return errors.Join(errs...)
}
