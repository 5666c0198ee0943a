# Rules for make: artifacts of the aot.toml next to the Makefile.
#
#     include $(shell aot make-rules)
#
#     all: build/predict.aot build/train.aot
#
# An artifact is looked at again when aot.toml or a file that it was made from has changed; `aot build` then decides
# whether there is anything to do.  AOT_FLAGS are options of `aot build`, AOT_OUTPUT is the manifest's output folder.

AOT ?= aot
AOT_FLAGS ?=
AOT_OUTPUT ?= build

$(AOT_OUTPUT)/%.aot: aot.toml
	$(AOT) build $(AOT_FLAGS) --depfile $(AOT_OUTPUT)/$*.d $*.aot

-include $(wildcard $(AOT_OUTPUT)/*.d)

.PHONY: aot-build aot-clean
aot-build:
	$(AOT) build $(AOT_FLAGS)
aot-clean:
	$(RM) $(AOT_OUTPUT)/*.d
	$(AOT) clean
