#include "recipes/baselines.h"

namespace tandem {

const char* const kTinyBaseline = R"py(
net = nn.Sequential(*block(32, 64, nn.BatchNorm1d), *block(64, 64, nn.BatchNorm1d), nn.Linear(64, 10)).to(device)
data, labels = torch.randn(5100, 32, device=device), torch.randint(10, (5100,), device=device)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
def step():
    rows = torch.randint(5100, (batch,), device=device)
    loss = F.cross_entropy(net(data[rows] + 0.1 * torch.randn(batch, 32, device=device)), labels[rows])
    optimizer.zero_grad(set_to_none=True); loss.backward(); optimizer.step()
)py";

const char* const kWebAgentBaseline = R"py(
class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*block(128, 512, nn.LayerNorm), *block(512, 256, nn.LayerNorm))
        self.value = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
        self.advantage = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    def forward(self, x):
        x = self.body(x); a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True)
net, target = Dueling().to(device), Dueling().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=1e-5)
rows = 65536
seen, after = torch.randn(rows, 128, device=device), torch.randn(rows, 128, device=device)
actions, rewards = torch.randint(10, (rows, 1), device=device), torch.randn(rows, 1, device=device)
def step():
    at = torch.randint(rows, (batch,), device=device)
    with torch.no_grad():
        best = net(after[at]).argmax(1, keepdim=True)
        wanted = rewards[at] + 0.97 * target(after[at]).gather(1, best)
    loss = F.smooth_l1_loss(net(seen[at]).gather(1, actions[at]), wanted)
    optimizer.zero_grad(set_to_none=True); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10); optimizer.step()
    with torch.no_grad():
        for t, p in zip(target.parameters(), net.parameters()): t.lerp_(p, 0.001)
)py";

}  // namespace tandem
