import pytest
import torch
from torch.nn import functional as F

import sdp_ref as sr
from sdp_bench.bench.studies.uci import stacked
from sdp_bench.bench.studies.uci.stacked import (
    GAUSSIAN,
    OBJECTIVES,
    SQUARED_ERROR,
    Hyperparameters,
    NetStack,
    Problem,
    StackTrainer,
)
from tests.bench.studies.conftest import copy_of

SETTINGS = (Hyperparameters(1e-2, 0.0), Hyperparameters(1e-3, 1e-2), Hyperparameters(1e-2, 1.0))
SEEDS = (3, 8)
ROWS, INPUTS = 100, 5


def problem(dtype=torch.float64, rows=ROWS):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(SEEDS), rows, INPUTS, generator=generator, dtype=torch.float64)
    y = x[..., 0].sin() + 0.1 * torch.randn(len(SEEDS), rows, generator=generator, dtype=torch.float64)
    return Problem(x.to(dtype), y.to(dtype), SEEDS)


def trained(objective, epochs=3, **options):
    trainer = StackTrainer(problem(**options), objective, SETTINGS)
    for _ in trainer.run(epochs):
        pass
    return trainer


def pinball(net, x, y, levels):
    error = y - net(torch.cat([x, 12 * (levels[:, None] - 0.5)], 1))[:, 0]
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def loss_of(name, net, log_variance, x, y, levels):
    if name == "sqr":
        return pinball(net, x, y, levels)
    if name == "sqr_ends":  # the sum of two means, as published
        return sum(pinball(net, x, y, torch.full_like(y, level)) for level in (0.025, 0.975))
    if name == "sdp_nll":
        x = x.clone().requires_grad_()
    out = net(x)
    if name == "squared_error":
        return (out[:, 0] - y).square().mean()
    if name == "pnn":
        variance = F.softplus(out[:, 1]) + 1e-3
    else:
        (slopes,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        variance = log_variance.exp() * slopes.square().sum(1) + 1e-3
    return (variance.log() / 2 + (y - out[:, 0]).square() / (2 * variance)).mean()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_net_is_trained_as_torch_trains_it_alone(name):
    objective, epochs = OBJECTIVES[name], 3
    together = trained(objective, epochs)
    first = NetStack.initial(problem(), objective, len(SETTINGS))
    data = StackTrainer(problem(), objective, SETTINGS)
    batches = []
    for epoch in range(epochs):
        data.epochs = epoch
        batches.append(data._shuffled())
    for index in range(len(first)):
        seed, setting = divmod(index, len(SETTINGS))
        net, log_variance = copy_of(first, index)
        groups = [
            {"params": net.parameters(), "weight_decay": SETTINGS[setting].weight_decay},
            {"params": [log_variance]},
        ]
        optimizer = torch.optim.Adam(groups, lr=SETTINGS[setting].learning_rate)
        for x, y, levels in batches:
            for start in range(0, ROWS, stacked.BATCH):
                rows = slice(start, start + stacked.BATCH)
                levels_of_rows = levels[seed, 0, rows] if objective.name == "sqr" else None
                inputs, targets = x[seed, :, rows].T, y[seed, 0, rows]
                loss = loss_of(name, net, log_variance, inputs, targets, levels_of_rows)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        alone = {
            "weight": net[0].weight,
            "bias": net[0].bias.unsqueeze(1),
            "second": net[2].weight,
            "offset": net[2].bias.unsqueeze(1),
            "log_variance": log_variance.view(1, -1),
        }
        for part, value in alone.items():
            assert torch.allclose(together.nets.tensors[part][index], value, rtol=1e-10, atol=1e-12), part


def test_the_gain_of_the_variance_is_that_of_sdp():
    nets = trained(GAUSSIAN).nets
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(len(nets), INPUTS, 7, generator=generator, dtype=torch.float64)
    out, gain = nets.with_gain(x)
    assert torch.allclose(out, nets(x))
    for index in range(len(nets)):
        net, _ = copy_of(nets, index)
        law = sr.DiagonalGaussian(x[index].T, torch.full_like(x[index].T, 0.25))
        predicted = sr.propagate(net, law, "sdp")
        assert torch.allclose(out[index].T, predicted.mean)
        assert torch.allclose(0.25 * gain[index], predicted.covariance[:, 0, 0])


def test_members_of_an_ensemble_draw_anew_and_the_first_is_the_net_alone():
    data = problem()
    first = NetStack.initial(Problem(data.features, data.targets, SEEDS, 0), GAUSSIAN, 1)
    second = NetStack.initial(Problem(data.features, data.targets, SEEDS, 1), GAUSSIAN, 1)
    assert torch.equal(first.weight, NetStack.initial(data, GAUSSIAN, 1).weight)
    for part in ("weight", "second"):
        assert not (first.tensors[part] == second.tensors[part]).any()


@pytest.mark.rounding
def test_a_training_goes_on_from_its_state_to_the_last_bit():
    through = trained(GAUSSIAN, 4, dtype=torch.float32)
    half = trained(GAUSSIAN, 2, dtype=torch.float32)
    state = half.to_bytes()
    resumed = StackTrainer(problem(torch.float32), GAUSSIAN, SETTINGS)
    resumed.restore(state)
    assert (resumed.epochs, resumed.steps) == (2, half.steps)
    for _ in resumed.run(4):
        pass
    for name, tensor in through.nets.tensors.items():
        assert torch.equal(tensor, resumed.nets.tensors[name])
    with pytest.raises(ValueError, match="another stack"):
        StackTrainer(problem(), SQUARED_ERROR, SETTINGS).restore(state)


def test_quantile_levels_are_drawn_again_in_every_epoch():
    trainer = StackTrainer(problem(), OBJECTIVES["sqr"], SETTINGS)
    levels = trainer._shuffled()[2]
    trainer.epochs = 1
    assert not torch.equal(levels, trainer._shuffled()[2])
    assert 0 <= levels.min() < 0.1
    assert 0.9 < levels.max() <= 1


def test_denormal_numbers_are_kept_after_training():
    tiny = torch.ones(1) * 1e-40
    trained(SQUARED_ERROR, 1)
    assert (tiny * 1).item() != 0
