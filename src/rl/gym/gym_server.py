"""The Python side of rl/gym/gym_process.h: live environments, stepped many at a time through shared memory.

Started by a worker with this text on standard input and the number of a socket as its argument. Messages of the socket:
    worker -> here   {"environment", "arguments", "live"}      here -> worker   what it is like, or why it can't be used
    worker -> here   {"slots", "width", ...} and the memory    then for each exchange a count, answered by a length: 0 for
                                                               all done, else of the JSON that follows and says what failed
A live environment is known by a key that the worker makes of its seed and the actions taken so far. A key that is not
here (the shard came from elsewhere, this process is new) is missing: the worker then sends the actions, and they are
replayed after a reset with the seed.
"""
import importlib
import itertools
import json
import mmap
import os
import socket
import struct
import sys
import time
import traceback

NOTHING, RESET, STEP, REPLAY = range(4)
DONE, MISSING, DIFFERS = 1, 2, 4
NONE, OVER, CUT = range(3)
LARGEST = 3.4028234663852886e38  # of float32: beyond it a reward would become infinite, and train on


def plain(text):
    """One line that any terminal and any JSON reader takes: a text of strangers may hold escape codes and half characters."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


class Refused(Exception):
    def __init__(self, code, what, why, do):
        super().__init__(what)
        self.reply = {"error": code, "what": plain(what), "why": plain(why), "do": plain(do)}


def last_words(error):
    try:
        return plain(str(error)) or type(error).__name__
    except Exception:  # of a class of the environment's own
        return "its text can't be made"


def described(error):
    """With the place: a run that never began leaves no log to look into."""
    traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    return plain(f"{type(error).__name__}: {last_words(error)[:500]} ({os.path.basename(where.filename)}:{where.lineno} in {where.name})")


def load(name, arguments):
    """A function that makes one environment."""
    try:
        import gymnasium
    except ImportError as error:
        raise Refused("gymnasium", "gymnasium is not installed", last_words(error),
                      f"{sys.executable} -m pip install gymnasium")
    sys.path.insert(0, os.getcwd())
    if not name.startswith("gym:"):
        module_name, _, attribute = name.partition(":")
        try:
            make = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:
            raise Refused("unknown", f"cannot load the environment {name}", described(error),
                          "write module:Class, with the module in this folder or on PYTHONPATH, or gym:Name-v1 for one of "
                          "Gymnasium's")
        return lambda: make(**arguments)
    environment = name[len("gym:"):]

    def make():
        return gymnasium.make(environment, disable_env_checker=True, **arguments)

    def registered():
        make().close()
        return make

    namespace = environment.partition("/")[0] if "/" in environment and ":" not in environment else ""
    try:
        try:
            return registered()
        except gymnasium.error.NamespaceNotFound:
            importlib.import_module(namespace.replace("-", "_").lower())  # a package registers its own when imported
            return registered()
    except ImportError as error:
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            raise Refused("missing", f"{name} needs a package that is not installed", last_words(error),
                          f"install it for {sys.executable}")
        raise Refused("unknown", f"there is no environment {name}", last_words(error),
                      f"install the package that holds it for {sys.executable}, or correct the name")
    except gymnasium.error.DependencyNotInstalled as error:
        raise Refused("missing", f"{name} needs a package that is not installed", last_words(error),
                      f"install it for {sys.executable}")
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.Error) as error:
        raise Refused("unknown", f"there is no environment {name}", last_words(error),
                      f"correct the name; `{sys.executable} -c \"import gymnasium; gymnasium.pprint_registry()\"` lists them")
    except Exception as error:
        raise Refused("broken", f"{name} cannot be made", described(error), "check env.arguments, and the environment")


def flattener(space, name):
    """(numbers, observation -> float32 vector) of an observation space."""
    import numpy as np
    from gymnasium import spaces
    if isinstance(space, spaces.Box):
        width = int(np.prod(space.shape, dtype=np.int64))
        if width == 0:
            raise Refused("observation", f"the observations of {name} are empty", f"its observation space is {space}",
                          "a learner needs at least one number")
        return width, lambda o: np.asarray(o, dtype=np.float32).reshape(-1)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return spaces.flatdim(space), lambda o: np.asarray(spaces.flatten(space, o), dtype=np.float32).reshape(-1)
    raise Refused("observation", f"the observations of {name} are no numbers of fixed size",
                  f"its observation space is {str(space)[:200]}; Box, Discrete, MultiDiscrete and MultiBinary can be learned from",
                  "give --env my_module:make, a function that returns it inside gymnasium.wrappers.FlattenObservation")


class DiscreteActions:
    def __init__(self, space):
        self.count, self.size, self.start = int(space.n), 0, int(space.start)

    def of(self, action):
        """The environment's own of what the worker sent."""
        return action + self.start

    def example(self, move):
        return (move * 7 + move // 3) % self.count


class BoxActions:
    """Numbers from -1 to 1, each mapped onto its low..high; what lies beyond counts as the end."""
    LARGEST_BOUND = 1e30  # larger ones are the largest float, meant as no bound

    def __init__(self, space, name):
        import numpy as np
        self.np, self.count, self.size = np, 0, int(np.prod(space.shape, dtype=np.int64))
        self.low, self.high = (np.asarray(b, np.float64).reshape(-1) for b in (space.low, space.high))
        self.shape, self.kind = space.shape, space.dtype
        if self.size == 0:
            raise Refused("action", f"the actions of {name} are empty", f"its action space is {str(space)[:200]}",
                          "a learner needs at least one number to choose")
        bounded = (np.abs(self.low) < self.LARGEST_BOUND) & (np.abs(self.high) < self.LARGEST_BOUND)
        if not bounded.all():
            first = int(np.argmin(bounded))
            raise Refused("action", f"{name} has continuous actions without bounds",
                          f"number {first} of its action space goes from {self.low[first]:g} to {self.high[first]:g}; a policy's -1 "
                          "and 1 are mapped onto the ends",
                          "give --env my_module:make, a function that returns it inside gymnasium.wrappers.TransformAction with "
                          "an action space of finite bounds")

    def of(self, action):
        np = self.np
        a = np.clip(np.asarray(action, np.float64), -1, 1)
        numbers = np.clip(self.low * (0.5 - 0.5 * a) + self.high * (0.5 + 0.5 * a), self.low, self.high)  # exact at both ends
        if np.issubdtype(self.kind, np.integer):
            numbers = np.rint(numbers)
        return numbers.astype(self.kind).reshape(self.shape)

    def example(self, move):
        return [((move * 7 + move // 3 + 5 * i) % 11) / 5 - 1 for i in range(self.size)]


def action_coding(space, name):
    from gymnasium import spaces
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.Box):
        return BoxActions(space, name)
    raise Refused("action", f"the actions of {name} are neither Discrete nor a Box",
                  f"its action space is {str(space)[:200]}; a learner chooses one of n actions, or numbers within bounds",
                  "give --env my_module:make, a function that wraps it with one Discrete action, or with a Box")


class Environments:
    def __init__(self, name, arguments):
        self.make = load(name, arguments)
        import gymnasium
        import numpy as np
        self.np = np
        try:
            first = self.make()
        except Exception as error:
            raise Refused("broken", f"{name} cannot be made", described(error), "check env.arguments, and the environment")
        if not hasattr(first, "observation_space") or not hasattr(first, "action_space"):
            raise Refused("broken", f"{name} is no Gymnasium environment", f"it made a {type(first).__name__}",
                          "derive it from gymnasium.Env, with observation_space and action_space")
        self.width, self.flat = flattener(first.observation_space, name)
        self.actions = action_coding(first.action_space, name)
        spec = getattr(first, "spec", None)
        self.longest = int(getattr(spec, "max_episode_steps", None) or 0)
        self.versions = {"gymnasium": gymnasium.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
        self.live, self.pool, self.most = {}, [first], 0

    def look(self, observation):
        flat = self.flat(observation)
        if flat.size != self.width:
            raise ValueError(f"an observation has {flat.size} numbers, the observation space {self.width}")
        if not self.np.isfinite(flat).all():
            raise ValueError("an observation has a number that is NaN or infinite")
        return flat

    def fresh(self):
        return self.pool.pop() if self.pool else self.make()

    def give_back(self, environment):
        if len(self.pool) < max(1, self.most):
            self.pool.append(environment)
        else:
            environment.close()

    def begin(self, environment, seed):
        return self.look(environment.reset(seed=seed)[0])

    def decide(self, environment, action):
        observation, reward, terminated, truncated, _ = environment.step(self.actions.of(action))
        reward = float(reward)
        if not self.np.isfinite(reward):
            raise ValueError(f"a reward is {reward}")
        if abs(reward) > LARGEST:
            raise ValueError(f"a reward is {reward:g}, more than float32 holds ({LARGEST:.3g}): scale rewards down, to 1 or so")
        return self.look(observation), reward, OVER if terminated else CUT if truncated else NONE

    def repeats_itself(self):
        """The same seed and actions give the same numbers: in a new one, and in one that was used before."""
        def episode(environment, seed, moves=50, seconds=1.0):
            seen, end = [self.begin(environment, seed).tobytes()], time.monotonic() + seconds
            for move in range(moves):
                if time.monotonic() > end:
                    break
                observation, reward, over = self.decide(environment, self.actions.example(move))
                seen.append((observation.tobytes(), reward, over))
                if over:
                    break
            return seen
        first, second = self.fresh(), self.make()
        episode(first, 11)
        one, two = episode(first, 12), episode(second, 12)
        self.give_back(first)
        self.give_back(second)
        shorter = min(len(one), len(two))
        return one[:shorter] == two[:shorter]

    def keep(self, key, environment):
        self.live[key] = environment
        while len(self.live) > self.most:  # left behind by a shard that moved or went back
            oldest = next(iter(self.live))
            self.give_back(self.live.pop(oldest))


class Memory:
    """The arrays of rl/gym/gym_process.cc, in its order."""
    def __init__(self, np, fd, shape):
        self.map = mmap.mmap(fd, shape["bytes"])
        os.close(fd)
        n, self.at = shape["slots"], 64
        self.beats = np.frombuffer(self.map, np.int64, 1, 0)

        def array(kind, *sizes):
            count = int(np.prod(sizes, dtype=np.int64))
            found = np.frombuffer(self.map, kind, count, self.at).reshape(sizes)
            self.at = (self.at + count * found.itemsize + 63) // 64 * 64
            return found
        self.before, self.after = array(np.uint64, n), array(np.uint64, n)
        self.seed, self.count = array(np.int64, n), array(np.int64, n)
        self.op, self.action, self.status, self.end = (array(np.int32, n) for _ in range(4))
        self.reward = array(np.float32, n)
        self.seen = array(np.float32, n, shape["width"])
        numbers = array(np.float32, n, shape["action_size"])
        if shape["action_size"]:
            self.action, self.history = numbers, array(np.float32, n, shape["longest"], shape["action_size"])
        else:
            kind = {1: np.uint8, 2: np.uint16, 4: np.int32}[shape["action_bytes"]]
            self.history = array(kind, n, shape["longest"])


def replayed(environments, memory, slot, seed):
    """An environment brought to where the actions lead; and whether it is where it was."""
    environment, actions = environments.fresh(), memory.history[slot, :memory.count[slot]].tolist()
    observation, over = environments.begin(environment, seed), NONE
    for action in actions:
        memory.beats[0] += 1
        if over:
            return environment, False, True
        observation, _, over = environments.decide(environment, action)
    same = observation.tobytes() == memory.seen[slot].tobytes()
    return environment, same, bool(over)


def exchange(environments, memory, n):
    ops, before, after = memory.op[:n].tolist(), memory.before[:n].tolist(), memory.after[:n].tolist()
    seeds, actions = memory.seed[:n].tolist(), memory.action[:n].tolist()
    for slot in range(n):
        op = ops[slot]
        if op == NOTHING:
            continue
        memory.beats[0] += 1
        environment = environments.live.pop(before[slot], None)
        try:
            if op == RESET:
                environment = environment or environments.fresh()
                memory.seen[slot] = environments.begin(environment, seeds[slot])
                environments.keep(after[slot], environment)
                memory.status[slot] = DONE
                continue
            flags = DONE
            if environment is None:
                if op == STEP:
                    memory.status[slot] = MISSING
                    continue
                environment, same, ended = replayed(environments, memory, slot, seeds[slot])
                flags |= 0 if same else DIFFERS
                if ended:  # where it goes on from here nobody can know
                    memory.reward[slot], memory.end[slot], memory.status[slot] = 0, CUT, flags
                    environments.give_back(environment)
                    continue
            observation, reward, end = environments.decide(environment, actions[slot])
            memory.seen[slot] = observation
            memory.reward[slot] = reward
            memory.end[slot] = end
            if end:
                environments.give_back(environment)
            else:
                environments.keep(after[slot], environment)
            memory.status[slot] = flags
        except Exception as error:
            reply = described(error)
            sys.stderr.flush()
            environments.pool.clear()  # what it shares with others may be spoilt
            return {"slot": slot, "error": reply}
    return None


def main():
    link = socket.socket(fileno=int(sys.argv[1]))
    asked = json.loads(link.recv(1 << 16))
    try:
        try:
            environments = Environments(asked["environment"], asked["arguments"])
            exact = environments.repeats_itself()
        except Refused:
            raise
        except Exception as error:
            raise Refused("broken", f"{asked['environment']} cannot be run", described(error), "mend the environment")
    except Refused as refused:
        sys.stderr.flush()
        link.send(json.dumps(refused.reply).encode())
        return
    environments.most = asked["live"]
    link.send(json.dumps({"width": environments.width, "actions": environments.actions.count, "action_size": environments.actions.size,
                          "longest": environments.longest, "exact": exact, "versions": environments.versions}).encode())
    message, descriptors, _, _ = socket.recv_fds(link, 1 << 16, 1)
    if not message:
        return
    memory = Memory(environments.np, descriptors[0], json.loads(message))
    while True:
        count = link.recv(16)
        if not count:
            return
        failed = exchange(environments, memory, struct.unpack("<i", count)[0])
        text = json.dumps(failed).encode() if failed else b""
        link.send(struct.pack("<i", len(text)) + text)


# ---- pictures: `python -c <this text> render <request.json> <video>` plays episodes again and films them

def ffmpeg():
    """The program that encodes: Debian's, or that of PyPI's imageio-ffmpeg."""
    import shutil
    found = shutil.which("ffmpeg")
    if found:
        return found
    try:
        import imageio_ffmpeg
        return imageio_ffmpeg.get_ffmpeg_exe()
    except Exception as error:
        raise Refused("ffmpeg", "there is no ffmpeg to encode the video", f"none is on the PATH, and {last_words(error)}",
                      f"`apt install ffmpeg`, or `{sys.executable} -m pip install imageio-ffmpeg`")


def pictured(name, arguments):
    """One environment that draws itself into arrays."""
    def refuse(why):
        raise Refused("picture", f"{name} draws no pictures", why,
                      "leave --render out; an environment of your own takes render_mode=\"rgb_array\" and returns an array "
                      "of height x width x 3 bytes from render()")
    try:
        environment = load(name, {**arguments, "render_mode": "rgb_array"})()
    except TypeError as error:
        refuse(f"it can't be made with render_mode=\"rgb_array\": {last_words(error)}")
    modes = (getattr(environment, "metadata", None) or {}).get("render_modes", [])
    if modes and "rgb_array" not in modes:
        refuse(f"its render modes are {', '.join(map(str, modes))}")
    return environment, refuse


def frames(environment, episodes, coding, refuse, name):
    import numpy as np

    def look():
        try:
            picture = environment.render()
        except Exception as error:
            import gymnasium
            if isinstance(error, (ImportError, gymnasium.error.DependencyNotInstalled)):
                raise Refused("missing", f"{name} needs a package to draw itself", last_words(error),
                              f"install it for {sys.executable}")
            refuse(described(error))
        picture = np.asarray(picture)
        if picture.ndim != 3 or picture.shape[2] != 3:
            refuse(f"render() returned {'nothing' if picture.ndim == 0 else f'an array of shape {picture.shape}'}")
        return np.ascontiguousarray(picture, dtype=np.uint8)
    for episode in episodes:
        environment.reset(seed=episode["seed"])
        yield look()
        for action in episode["actions"]:
            _, _, terminated, truncated, _ = environment.step(coding.of(action))
            yield look()
            if terminated or truncated:
                break


def encode(program, file, fps, pictures):
    import subprocess
    first = next(pictures)
    height, width = first.shape[:2]
    # Both sides even: most players know no other 4:2:0. The end of the name says what kind of file it is.
    words = [program, "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}",
             "-i", "-", "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"] + ([] if file.endswith(".gif") else ["-pix_fmt", "yuv420p"]) + [file]
    count, size = 0, first.shape
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as encoder:
        try:
            for picture in itertools.chain([first], pictures):
                if picture.shape != size:
                    raise Refused("picture", "the pictures change their size",
                                  f"the first is {width} x {height}, one is {picture.shape[1]} x {picture.shape[0]}",
                                  "a video has one size: let render() return arrays of one shape")
                encoder.stdin.write(picture.tobytes())
                count += 1
            encoder.stdin.close()
        except BrokenPipeError:
            pass
        except BaseException:
            encoder.kill()
            raise
        said = encoder.stderr.read().decode(errors="replace")
    if encoder.returncode != 0:
        raise Refused("ffmpeg", f"{program} could not write the video",
                      last_words(said)[:500] or f"it ended with code {encoder.returncode}",
                      "choose another file or kind of file (.mp4, .mkv, .webm, .gif), or another ffmpeg")
    return {"frames": count, "width": width, "height": height, "fps": fps}


def render(request, video):
    """Prints one line of JSON: what was filmed, or why it could not be."""
    with open(request) as text:
        asked = json.load(text)
    out, sys.stdout = sys.stdout, sys.stderr   # what an environment prints is no answer
    try:
        program = ffmpeg()
        environment, refuse = pictured(asked["environment"], asked["arguments"])
        try:
            coding = action_coding(environment.action_space, asked["environment"])
            if not asked["episodes"]:   # asked before they are played: can it be filmed?
                next(frames(environment, [{"seed": 0, "actions": []}], coding, refuse, asked["environment"]))
                print("{}", file=out)
                return
            fps = float((getattr(environment, "metadata", None) or {}).get("render_fps") or 30)
            reply = encode(program, video, fps, frames(environment, asked["episodes"], coding, refuse, asked["environment"]))
        finally:
            environment.close()
    except Refused as refused:
        reply = refused.reply
    except Exception as error:
        reply = {"error": "broken", "what": f"{asked['environment']} could not be filmed", "why": described(error),
                 "do": "mend the environment, or leave --render out"}
    print(json.dumps(reply), file=out)


if len(sys.argv) > 3 and sys.argv[1] == "render":
    render(sys.argv[2], sys.argv[3])   # as an argument: a path may be no UTF-8
else:
    main()
