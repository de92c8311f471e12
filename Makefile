# make demo: made-up cars, a training of two minutes, a report. make test: everything that CI runs.
# make drills: 30 kills of one run, some minutes; KILLS and SEED change them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test drills lint install install-dev clean-demo

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

# opencv-python needs libGL; where that is missing, the headless build of the same version takes its place.
define check_opencv
	@$(BIN)/python -c 'import cv2' 2>/dev/null || { \
		echo 'libGL is missing: installing opencv-python-headless in the place of opencv-python'; \
		version=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("opencv-python"))') && \
		$(BIN)/python -m pip uninstall -q -y opencv-python && \
		$(BIN)/python -m pip install -q "opencv-python-headless==$$version" && \
		$(BIN)/python -c 'import cv2'; }
endef

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	$(check_opencv)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	$(check_opencv)
	@touch $@ $(VENV)/.installed

demo: install clean-demo
	$(BIN)/python tools/make_demo_data.py demo_data
	$(BIN)/python tools/train.py configs/unet_carvana_demo.py --work-dir work_dirs/demo

clean-demo:
	rm -rf demo_data work_dirs/demo

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

drills: install-dev
	$(BIN)/python -m tests.drills --kills $(or $(KILLS),30) $(if $(SEED),--seed $(SEED))
