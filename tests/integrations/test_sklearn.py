"""The estimator is one of scikit-learn's, and its tasks are a learner's."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import impresslearn as il
from impresslearn.integrations.sklearn import ImpressClassifier


@pytest.fixture(scope="module")
def digits():
    inputs, labels = load_digits(return_X_y=True)
    return train_test_split(inputs, labels, random_state=0)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks():
    results = check_estimator(ImpressClassifier())
    assert len(results) > 40
    assert {each["status"] for each in results} <= {"passed", "skipped"}


def test_tasks_share_a_network_and_change_no_other(digits, tmp_path):
    train, test, labels, truth = digits
    words = np.array(["even", "odd"])
    model = ImpressClassifier().fit(train, labels, task="digit")
    before = model.decision_function(test, task="digit")
    model.fit(train, words[labels % 2], task="parity")
    assert np.array_equal(before, model.decision_function(test, task="digit"))
    assert list(model.classes_) == ["even", "odd"]
    assert (model.predict(test) == words[truth % 2]).mean() > 0.85
    assert (model.predict(test, task="digit") == truth).mean() > 0.9
    assert model.learner_.tasks_["digit"].bytes <= 500
    model.learner_.save(tmp_path / "digits.impress")
    assert list(il.load(tmp_path / "digits.impress").tasks_) == ["digit", "parity"]
    with pytest.raises(ValueError, match="no task 'size'; fitted are digit, parity"):
        model.predict(test, task="size")
    assert list(model.fit(train, labels).learner_.tasks_) == ["task"]


def test_in_pipelines_and_searches(digits):
    train, test, labels, truth = digits
    search = GridSearchCV(ImpressClassifier(), {"max_bytes": [150, 1000]}, cv=2)
    model = make_pipeline(StandardScaler(), search).fit(train[:400], labels[:400])
    assert model[-1].best_params_ == {"max_bytes": 1000}
    assert model.score(test, truth) > 0.85
