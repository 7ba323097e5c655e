"""Wrong uses of the library, one a line and grouped by area.

A line is a Python expression over the names of `names.py`, or the arguments of a command. It runs
in a folder with the files that `names.py` writes, and leaves them and the learners as they were.
"""

PYTHON = {
    "Network": """
il.create_backbone("resnet19")
il.create_backbone("lenet_300_100", num_classes=0)
il.create_backbone("lenet_300_100", num_classes="ten")
il.create_backbone("lenet_300_100", num_clases=10)
il.create_backbone("lenet_300_100", in_features=-4)
il.create_backbone("lenet_300_100", in_features=16.5)
il.create_backbone("lenet_300_100", width=[500, 200])
il.create_backbone("lenet_300_100", widths=[500, 0])
il.create_backbone("lenet_300_100", widths=500)
il.create_backbone("lenet_300_100", init="xavier")
il.create_backbone("lenet_300_100", gain=-1)
il.create_backbone("lenet_300_100", seed=1.5)
il.create_backbone("lenet_300_100", norm="per_task")
il.create_backbone("lenet_300_100", head="private")
il.create_backbone("resnet20", norm="layer")
il.create_backbone(64)
il.register_backbone("resnet20")
network.to("gpu")
network.to("cuda:99")
""",
    "Your own network": """
il.adapt(nn.Linear)
il.adapt("resnet18.pt")
il.adapt({"weight": torch.zeros(3, 3)})
il.adapt(nn.ReLU())
il.adapt(mlp, norms="batch")
il.adapt(mlp, norm="instance")
il.adapt(mlp, input_shape=16.0)
il.adapt(mlp, input_shape=())
il.adapt(mlp, skip=["layer9.*"])
il.adapt(mlp, include=["*.gamma"])
il.adapt(mlp, num_classes=4)
il.adapt(mlp, head="both")
il.adapt(mlp, input_dtype="float32")
il.adapt(nn.LazyLinear(3))
il.ImpressLearner(il.adapt(nn.Linear(16, 3))).add_random_masks(2)
over(Twice()).learn_task("new", data)
over(Detached()).learn_task("new", data)
over(Noisy()).learn_task("new", data)
over(mlp).learn_task("new", (X[:, :4], Y))
over(mlp).learn_task("new", (X.reshape(-1, 4, 4), Y))
over(nn.Sequential(mlp, nn.Softmax(1))).learn_task("new", data)
over(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), mlp)).learn_task("new", data)
over(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(3)))
over(mlp).learn_task("new", ({"x": X}, Y))
""",
    "Learner settings": """
il.ImpressLearner(mlp)
il.ImpressLearner("lenet_300_100")
il.ImpressLearner(network, basiss=None)
il.ImpressLearner(network, granularty="unit")
il.ImpressLearner(network, learning_rate=0.1)
il.ImpressLearner(network, recipes={"lr": 0.1})
il.ImpressLearner(network, strat="network")
il.ImpressLearner(network, sparcity=0.5)
il.ImpressLearner(network, network)
il.ImpressLearner(network, sparsity=1.0)
il.ImpressLearner(network, sparsity=90)
il.ImpressLearner(network, sparsity="0.9")
il.ImpressLearner(network, sparsity=float("nan"))
il.ImpressLearner(network, allocation="erdos-renyi")
il.ImpressLearner(network, granularity="channel")
il.ImpressLearner(network, granularity="weight")
il.ImpressLearner(network, granularity=None)
il.ImpressLearner(network, granularity="weight", precision="coded", output_scale=True)
il.ImpressLearner(network, output_scale="yes")
il.ImpressLearner(network, precision="int6")
il.ImpressLearner(network, precision=torch.float16)
il.ImpressLearner(network, bit_price=2.0)
il.ImpressLearner(network, precision="coded", bit_price=-1)
il.ImpressLearner(network, penalty=-0.5)
il.ImpressLearner(network, penalty=[0.1, 0.2])
il.ImpressLearner(network, task_recipe={"lr": 0.1})
il.ImpressLearner(network, basis_recipe="adam")
il.ImpressLearner(network, score_rule="abs")
il.ImpressLearner(network, seed="zero")
il.ImpressLearner(network, seed=2**70)
il.ImpressLearner(network, start="networks")
il.ImpressLearner(network, tune="norms")
il.ImpressLearner(network, tune=3)
il.ImpressLearner(network, fold_after=0.5)
il.ImpressLearner(network, tune=("norm",), fold_after=2)
il.ImpressLearner(network, max_bytes=500)
il.ImpressLearner(network, precision="coded", max_bytes=0)
il.ImpressLearner(network, progress="loud").add_random_masks(2).learn_task("new", data)
il.ImpressLearner(network, cache_bytes="1GB")
il.ImpressLearner(network, preprocessing={"mean": 0.5})
il.ImpressLearner(network, bank=[])
il.ImpressLearner(network, bank=other_bank)
setattr(learner, "sparsity", 0.5)
""",
    "Presets": """
il.preset("few_label")
il.preset(3)
il.ImpressLearner.from_preset(network, "pretraind")
il.ImpressLearner.from_preset(network, "pretrained")
il.ImpressLearner.from_preset(network, "few_labels")
il.ImpressLearner.from_preset(network, "default", basiss=5)
il.ImpressLearner.from_preset(network, "default", starts="network")
il.ImpressLearner.from_preset(network, "default", recipe={"epoch": 3})
il.ImpressLearner.from_preset(network, "default", recipe=3)
il.ImpressLearner.from_preset("lenet_300_100", "default")
""",
    "Recipe": """
il.Recipe(optimiser="adam")
il.Recipe(lr=0)
il.Recipe(lr="fast")
il.Recipe(lr=float("inf"))
il.Recipe(schedule="linear")
il.Recipe(momentum=1.5)
il.Recipe(weight_decay=-1)
il.Recipe(epochs=-1)
il.Recipe(min_steps=1.5)
il.Recipe(batch_size=0)
il.Recipe(batch_fraction=2)
il.Recipe(warmup_epochs="one")
il.Recipe(label_smoothing=1)
il.Recipe().changed(3)
""",
    "Preprocessing": """
il.Preprocessing(mean="imagenet")
il.Preprocessing(mean=[0.5, float("nan")])
il.Preprocessing(std=0)
il.Preprocessing(shape=28)
il.Preprocessing(shape=(1, -1, 28))
il.Preprocessing(size=0)
il.Preprocessing(size=(28, 28))
il.Preprocessing(pixels="yes")
il.Preprocessing(columns="age")
il.Preprocessing(means=0.5)
il.Preprocessing(mean=[0.1, 0.2, 0.3]).apply(X)
il.Preprocessing(shape=(1, 5, 5)).apply(X)
il.Preprocessing(pixels=True).apply(X - 7)
il.Preprocessing(pixels=False).apply(np.zeros((3, 16), np.uint8))
il.Preprocessing.standardising("data.npz")
il.Preprocessing.standardising(np.zeros((0, 16)))
il.Preprocessing.standardising(X, size="large")
""",
    "Data": """
learner.learn_task("new", X)
learner.learn_task("new", (X, Y, Y))
learner.learn_task("new", (X[:3], Y[:2]))
learner.learn_task("new", (X[:0], Y[:0]))
learner.learn_task("new", (X[:, :15], Y))
learner.learn_task("new", (X[0], Y[0]))
learner.learn_task("new", (nan, Y))
learner.learn_task("new", (X.astype(complex), Y))
learner.learn_task("new", (X.astype(str), Y))
learner.learn_task("new", (["first", "second"], [0, 1]))
learner.learn_task("new", ([[1, 2], [3]], [0, 1]))
learner.learn_task("new", ([None, None], [0, 1]))
learner.learn_task("new", (X, Y + 0.5))
learner.learn_task("new", (X, Y.astype(float) * np.nan))
learner.learn_task("new", (X, np.eye(3)[Y]))
learner.learn_task("new", (X, [None] * len(X)))
learner.learn_task("new", (X, ["a", 1] * (len(X) // 2)))
learner.learn_task("new", (X, np.arange(len(X)) % 5))
learner.learn_task("new", (X, [[]] * len(X)))
learner.learn_task("new", None)
learner.learn_task("new", 3)
learner.learn_task("new", {"inputs": X, "labels": Y})
learner.learn_task("new", pandas.DataFrame({"a": [1.0], "b": ["x"]}))
learner.learn_task("new", (pandas.DataFrame({"a": [1.0, 2], "b": ["x", "y"]}), [0, 1]))
learner.learn_task("new", "no/such/folder")
learner.learn_task("new", "data.npz")
learner.learn_task("new", "empty")
learner.learn_task("new", iter([(X[0], 0)]))
learner.learn_task("new", torch.utils.data.TensorDataset(torch.tensor(X)))
learner.learn_task("new", (il.Inputs(X, X), Y))
learner.learn_task("new", ({"ids": X}, Y))
""",
    "Learning": """
learner.learn_task("letters", data)
learner.learn_task("", data)
learner.learn_task(7, data)
learner.learn_task(data, "new")
learner.learn_task("new")
learner.learn_task("new", data, sed=1)
learner.learn_task("new", data, seed=-0.5)
learner.learn_task("new", data, note={1, 2})
empty.learn_task("new", data)
learner.learn_basis("digits", data)
learner.learn_basis("new", data, seed="a")
learner.learn_homogeneous("new", data)
learner.learn_homogeneous("new", data, 0)
learner.learn_homogeneous("new", data, 2, seeds=[1])
learner.learn_homogeneous("new", data, 2, seeds=[1, 1])
learner.learn_homogeneous("new", data, 2, batched="yes")
learner.learn_tasks([data])
learner.learn_tasks({"new": X})
learner.learn_tasks({"letters": data})
learner.learn_tasks({"new": data}, batched=1)
learner.learn_features(data)
learner.features(X)
il.ImpressLearner.from_preset(il.adapt(nn.Linear(9, 3)), "few_labels").features(["hello"])
learner.update_task("leters", data)
learner.update_task("digits", data)
learner.update_task("letters", (X, Y + 3))
learner.update_task("letters", (X[:, :4], Y))
learner.versions("nothing")
learner.restore_task("letters", 9)
learner.restore_task("letters", "1")
learner.restore_task("leters", 1)
learner.restore_task("letters", 1)
learner.remove_task("leters")
learner.remove_task(None)
learner.remove_task(["letters"])
learner.tasks_["leters"]
wild.learn_task("new", data)
small.learn_task("new", data)
""",
    "Masks": """
learner.add_random_masks(0)
learner.add_random_masks(2.5)
learner.add_random_masks("five")
learner.add_masks(5, source="trained")
learner.add_masks(5, sources="random")
il.random_bank(network, 5)
il.random_bank(network.layers)
il.random_bank(network.layers, 5, sparsty=0.5)
il.random_bank(network.layers, -1)
il.random_bank(network.layers, 5, sparsity=2)
il.random_bank(network.layers, 5, allocation="even")
il.disjoint_bank(network.layers, 0)
il.MaskBank(network)
learner.bank_.append("digits", learner.bank_.mask("digits"))
learner.bank_.append("new", {})
learner.bank_.append("new", {"0.weight": torch.ones(3)})
learner.bank_.append("new", {name: 2.0 * m for name, m in learner.bank_.mask("digits").items()})
learner.bank_.append("new", {name: m[:1] for name, m in learner.bank_.mask("digits").items()})
learner.bank_.append("new", torch.ones(24, 16, dtype=bool))
learner.bank_.mask("digit")
learner.bank_.mask(0)
il.MaskBank(network.layers).overlap()
il.masks.train_mask(mlp, data)
il.masks.train_mask(network, data, sparsity=-0.1)
il.masks.train_mask(network, data, score_rule="abs")
il.masks.train_mask(network, data, recipe={"lr": 0.1})
il.masks.train_mask(network, data, epochs=3)
il.masks.prune(network, data, rounds=0)
il.masks.prune(network, X)
il.masks.accuracy(network, "digits", data)
il.masks.accuracy(network, {"nothing": torch.ones(2)}, data)
il.masks.accuracy(network, learner.bank_.mask("digits"), data, classes=[0])
il.masks.random_mask(network.layers, [1, 2], 0)
il.masks.random_mask(network.layers, [10**6] * 3, 0)
il.masks.disjoint_mask(network.layers, 4, 0, 9)
il.charts.mask_picture(learner, "digit")
il.charts.mask_picture(learner, "digits", layer="9.weight")
il.charts.mask_picture(3)
il.charts.input_picture(learner, "digits", shape=(5, 5))
il.charts.mask_usage(empty)
il.charts.mask_usage(learner, tasks=["leters"])
""",
    "Predicting": """
learner.predict(X, "leters")
learner.predict(X, task=0)
learner.predict(X, task=["letters"] * 3)
learner.predict(X, tasks="letters")
learner.predict(X[0], "letters")
learner.predict(X[:, :4], "letters")
learner.predict(nan, "letters")
learner.predict("data.npz", "letters")
learner.predict(None, "letters")
learner.predict(data, "letters")
learner.predict(X.astype(str), "letters")
learner.predict({"x": X}, "letters")
learner.logits(X)
learner.logits(X, ["letters", "digits"])
learner.logits(X, None)
learner.score(X, "letters")
learner.score((X, Y + 7), "letters")
learner.score((X, Y.astype(str)), "letters")
learner.score((X[:0], Y[:0]), "letters")
learner.score(data)
stored.predict(X[:, :4], "letters")
learner.zero_shot_score(data, classes=[0])
learner.prepare([[1, 2], [3]])
learner.task_model("leters")
learner.statistics_of("leters")
empty.predict(X)
""",
    "Unknown task": """
learner.infer_task(X, method="oneshot")
learner.infer_task(X, among="letter")
learner.infer_task(X, among=[])
learner.infer_task(X, among=["letters", "leters"])
learner.infer_task(X, among=3)
learner.infer_task(X[:0])
learner.infer_tasks(X[:0])
learner.tell_apart({})
learner.tell_apart({"letters": data})
learner.predict(X, "letters", per_input=True)
learner.infer_task(nan)
learner.infer_task(X, objectiv="entropy")
learner.infer_task(X, method="alpha", objective="entropie")
learner.infer_task(X, method="alpha", recipe={"lr": -1})
learner.infer_task(X, method="alpha", penalty="high")
learner.predict(1000 * X + 50)
learner.predict_with(X, learner.infer_task(X))
empty.infer_task(X)
il.score_inference(learner, {})
il.score_inference(learner, {"leters": data})
il.score_inference(learner, {"letters": data}, inputs=0)
il.score_inference(learner, {"letters": data}, inputs=8, trials=0)
""",
    "Streams": """
il.streams.rotated_digits(tasks=0)
il.streams.rotated_digits(task=3)
il.streams.permuted_digits(seeds=3)
il.streams.rotated_digits(tasks="five")
il.streams.rotated_digits(angles=[])
il.streams.rotated_digits(angles=["left"])
il.streams.rotated_digits(tasks=400)
il.streams.permuted_digits(seed=None)
il.streams.rotated_mnist(root="nowhere", download=False)
il.streams.split_cifar100(root="nowhere", download=False)
il.streams.split_cifar100(classes_per_task=30, root="nowhere", download=False)
il.streams.from_arrays({})
il.streams.from_arrays([data])
il.streams.from_arrays({"a": data})
il.streams.from_arrays({"a": (data, data, data)})
il.streams.from_folder("nowhere")
il.streams.from_folder("empty")
il.streams.from_folder("pictures", size=-1)
stream["rotated-1"]
stream.for_validation(fraction=1.5)
""",
    "Comparing": """
il.evaluate(learner, {})
il.evaluate(learner)
il.evaluate(learner, tasks, base=1)
il.evaluate(object(), tasks)
il.evaluate(learner, tasks, basis=9)
il.evaluate(learner, tasks, basis=-1)
il.evaluate(learner, {"a": data})
il.evaluate(learner, "rotated_digits")
il.evaluate(Useless(), tasks)
il.compare({}, tasks)
il.compare([make], tasks)
il.compare({"a": learner}, tasks)
il.compare({"a": (make, {"speed": [1, 2]})}, tasks)
il.compare({"a": make}, tasks, seeds=0)
il.compare({"a": make}, tasks, seeds=[1, 1])
il.compare({"ours": make}, tasks, basis={"mine": 1})
il.compare({"a": make}, tasks, evaluate_on=["three"])
il.compare({"a": make}, tasks, workers=0)
il.compare({"a": make}, tasks, backend="dask")
il.compare({"a": make}, tasks, cach="runs")
il.compare({"a": make}, {})
compared.means("speed")
compared.rows("seeds")
compared.heatmap("lr", "penalty")
compared.save_chart("chart.gif")
compared.to_csv("no/such/folder/results.csv")
il.SupSup(network, granularity="unit")
il.SupSup(network, precision="int7")
il.FineTuning(mlp)
il.FineTuning(network, statistics="mine")
il.FineTuning(network, lr=0.1)
il.FineTuning(network).predict(X, "a")
il.Hybrid(network, bank=3)
il.methods.lora(network, rank=0)
il.methods.lora(network, ranks=4)
il.advise({}, network)
il.advise([data, data], network)
il.advise({"a": data, "b": data}, network, budgets=[0])
il.advise({"a": data, "b": data}, network, max_seconds=-1)
il.advise({"a": data, "b": data}, network, basis=7)
il.advise({"a": data, "b": data}, network, budget=500)
""",
    "Stores": """
learner.save("shop.impress")
learner.save("no/such/folder/a.impress")
learner.save("pictures", overwrite=True)
learner.save(None)
learner.save("new.impress", tasks=["leters"])
learner.save("new.impress", tasks="letters")
learner.save("new.impress", weights="none")
il.load("nothing.impress")
il.load("pictures")
il.load("data.npz")
il.load("zero.impress")
il.load("cut.impress")
il.load("damaged.impress")
il.load("other.impress")
il.load("shop.impress", modul=mlp)
il.load("shop.impress", device="gpu")
il.load("shop.impress", module=mlp)
il.load("mine.impress")
il.load("mine.impress", module=nn.Linear(16, 3))
il.load("mine.impress", module="net.py")
il.load(5)
il.load()
il.open_store("shop.impress", readonl=True)
il.open_store("nothing.impress")
il.open_store("data.npz")
il.open_store("shop.impress", timeout=-1)
opened.learn_task("new", data)
opened.remove_task("letters")
opened.add_random_masks(2)
closed.predict(X, "letters")
closed.learn_task("new", data)
locked(lambda: busy.learn_task("new", data))
""",
    "Export": """
learner.export("leters")
learner.export()
export_task(learner.task_model("letters"), "task.pth")
export_task(learner.task_model("letters"), "no/such/folder/task.onnx")
export_task(learner.task_model("letters"), "task.onnx", example=X[:, :3])
export_task(learner, "task.onnx")
export_task("letters", "task.safetensors")
export_task(learner.task_model("letters"), "task")
""",
    "Extras": """
without("onnxscript", lambda: export_task(learner.task_model("letters"), "task.onnx"))
without("pandas", lambda: command("learn shop.impress new=table.csv"))
without("fastapi", lambda: command("serve shop.impress"))
without("PIL", lambda: learner.learn_task("new", "pictures"))
without("ray", lambda: il.compare({"a": make}, tasks, backend="ray", workers=2, seeds=2))
""",
    "Server": """
create_app("nothing.impress")
create_app("data.npz")
create_app(3)
ServeSettings(max_bytes=0)
ServeSettings(max_rows="many")
ServeSettings(token="")
ServeSettings(tokens="secret")
get("/nothing")
get("/tasks?limit=0")
get("/tasks?limit=ten")
get("/task?name=leters")
get("/task")
get("/predict")
post("/predict", {})
post("/predict", {"inputs": X.tolist()})
post("/predict", {"inputs": X.tolist(), "task": "leters"})
post("/predict", {"inputs": X.tolist(), "task": 3})
post("/predict", {"inputs": X.tolist(), "task": ["letters"]})
post("/predict", {"inputs": [[1, 2], [3]], "task": "letters"})
post("/predict", {"inputs": [["a"] * 16], "task": "letters"})
post("/predict", {"inputs": [[1, 2]], "task": "letters"})
post("/predict", {"inputs": [], "task": "letters"})
post("/predict", {"input": X.tolist(), "task": "letters"})
post("/predict", {"inputs": X.tolist(), "task": "letters", "logits": "many"})
post("/predict?task=letters", {"inputs": X.tolist()})
post("/predict", b"not json")
post("/predict?task=letters", b"not numpy", "application/x-npy")
post("/predict?task=letters", b"a,b", "text/csv")
post("/infer", {"inputs": X.tolist(), "among": "nothing"})
post("/infer", {"inputs": X.tolist(), "top": 0})
post("/predict", {"inputs": np.zeros((200, 16)).tolist(), "task": "letters"})
""",
    "PEFT": """
ImpressConfig(num_masks=0)
ImpressConfig(granularity="weight")
ImpressConfig(seed="a")
ImpressConfig(masks=3)
get_peft_model(nn.Sequential(nn.Linear(4, 4)), ImpressConfig(target_modules=["query"]))
get_peft_model(nn.Sequential(nn.LayerNorm(4)), ImpressConfig(target_modules=["0"]))
get_peft_model(nn.Sequential(nn.Linear(4, 4)), ImpressConfig())
""",
}

COMMANDS = """
lern
learn
learn shop.impress
learn shop.impress nothing.csv
learn nothing.impress data.npz
learn data.npz data.npz
learn damaged.impress new=data.npz
learn shop.impress letters=data.npz
learn shop.impress new=data.npz --speed 3
learn shop.impress new=data.npz --update
learn shop.impress new=data.npz --features
learn shop.impress new=data.npz other/data.npz data.npz
learn shop.impress new=notes.txt
learn shop.impress new=wide.npz
learn shop.impress new=nolabels.npz
learn shop.impress new=nan.npz
learn shop.impress new=words.csv
learn shop.impress new=nolabel.csv
learn shop.impress new=ragged.csv
learn shop.impress new=zero.csv
learn shop.impress new=header.csv
learn shop.impress new=pictures
learn shop.impress new=empty
learn shop.impress new=damaged
learn shop.impress new=table.csv --label-column colour
learn shop.impress new=data.npz --device gpu
learn shop.impress new=data.npz --device cuda:7
learn shop.impress new=data.npz --module net.py
learn shop.impress new=data.npz --module net:nothing
learn shop.impress new=data.npz --module net:broken
learn mine.impress new=data.npz
new shop.impress data.npz
new fresh.impress
new fresh.impress notes.txt
new fresh.impress data.npz --set =3
new fresh.impress data.npz --network widths=3
new fresh.impress data.npz --network head=mine
new fresh.impress data.npz --preset pretrained
new fresh.impress data.npz --prepare shape=3
new fresh.impress data.npz --standardise --prepare mean=1
new fresh.impress wide.npz data.npz --standardise
new fresh.impress data.npz --backbone resnet19
new fresh.impress data.npz --preset few_label
new fresh.impress data.npz --set basiss=3
new fresh.impress data.npz --set sparsity
new fresh.impress data.npz --set sparsity=2
new fresh.impress data.npz --set max_bytes=500
new fresh.impress data.npz --set 'recipe={"epoch":3}'
new fresh.impress data.npz --network num_clases=10
new fresh.impress data.npz --module net:make --network norms=batch
new fresh.impress data.npz --masks -1
new fresh.impress data.npz --masks many
new fresh.impress data.npz --masks 3 --mask-source trained
new fresh.impress data.npz --prepare means=0.5
new fresh.impress data.npz --prepare std=0
new no/such/folder/fresh.impress data.npz
advise data.npz wide.npz --budget much
advise data.npz b=data.npz --budget 0
advise data.npz b=data.npz --max-seconds -1
predict shop.impress
predict shop.impress nothing.csv
predict shop.impress notes.txt
predict shop.impress pictures --task letters
predict shop.impress damaged/cat/1.png --task letters
predict shop.impress data.npz --task leters
predict shop.impress wide.npz --task letters
predict shop.impress far.npz
predict bare.impress data.npz
evaluate shop.impress leters=data.npz
evaluate shop.impress letters=nolabel.csv
evaluate shop.impress letters=new.npz
evaluate shop.impress
tasks shop.impress leters
tasks notes.txt
tasks other.impress
tasks zero.impress
info shop.impress leters
info nothing.impress
verify damaged.impress
verify cut.impress
restore shop.impress letters 9
restore shop.impress letters first
restore shop.impress leters 1
remove shop.impress leters --yes
remove shop.impress
compact nothing.impress
compact notes.txt
serve nothing.impress
serve shop.impress --port 99999
serve shop.impress --max-bytes 0
serve shop.impress --token ''
serve shop.impress --device cuda
demo --seed -1
demo --out notes.txt
"""


def wrong_uses() -> dict[str, list[str]]:
    """Area -> the lines of code, or of commands."""
    texts = PYTHON | {"Command line": COMMANDS}
    return {area: text.strip().splitlines() for area, text in texts.items()}
