"""Videos as data, through the real programs: frames beside FFmpeg's own, the cache through changes, damage and kills,
annotations that are checked, videos that can't be used, the generated set.

    python3 video_data_test.py <folder with tandem and tandem-video> [unittest arguments]

`ffmpeg` makes the videos and judges the frames. Without it, or without tandem-video, the tests are skipped.
"""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

import skips
from run_test import BIN, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

VIDEO = BIN / "tandem-video"
FFMPEG, FFPROBE = shutil.which("ffmpeg"), shutil.which("ffprobe")
SCALE = "area+accurate_rnd+bitexact"


@unittest.skipUnless(FFMPEG and VIDEO.exists(), "no ffmpeg, or a build without tandem-video")
class Videos(Case):
    def ffmpeg(self, *args):
        return subprocess.run([FFMPEG, "-v", "error", "-y", *map(str, args)], check=True, capture_output=True, cwd=self.dir).stdout

    def make(self, name, *coding, size="96x64", frames=40, rate=25, source="testsrc2"):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.ffmpeg("-f", "lavfi", "-i", f"{source}=s={size}:r={rate}", "-frames:v", frames, *coding, path)
        return path

    def annotate(self, folder, name, trial, frames, label=0):
        folder = folder / "Annotations"
        folder.mkdir(parents=True, exist_ok=True)
        rows = "".join(f"{i},{label if isinstance(label, int) else label(i)}\n" for i in range(frames))
        (folder / f"prediction_{name}_{trial}.csv").write_text("Frame,Action\n" + rows)

    def mice(self, count=2, frames=40):
        folder = self.dir / "mice"
        for number in range(count):
            self.make(f"mice/Videos/m{number}.mp4", "-bf", "2", frames=frames, size=f"{96 + 2 * number}x64")
            self.annotate(folder, f"m{number}", 1, frames, label=lambda i: i % 2)
        return folder

    def decoded(self, path, width, height):
        return subprocess.run([VIDEO, "decode", path, "--size", f"{height}x{width}", "--raw"], check=True, capture_output=True).stdout

    def data(self, word, folder, *more, code=0):
        return json.loads(self.tandem("data", word, "video", folder, "--json", *more, code=code).stdout)

    def prepare(self, folder, *more, code=0):
        return self.data("prepare", folder, "--size", 32, *more, code=code)

    def outcomes(self, result):
        return {video["name"]: video["outcome"] for video in result["videos"]}

    def errors(self, result):
        return {f["file"]: f["text"] for f in result["findings"] if f["level"] == "error"}


class Frames(Videos):
    def judged(self, path, width, height):
        return self.ffmpeg("-noautorotate", "-i", path, "-vsync", "passthrough", "-vf", f"scale={width}:{height}:flags={SCALE}",
                           "-pix_fmt", "gray", "-f", "rawvideo", "-")

    def test_frames_equal_ffmpegs_to_the_bit(self):
        videos = [self.make("h264.mp4", "-bf", "3"), self.make("full.mp4", "-color_range", "pc", size="64x64"),
                  self.make("odd.mkv", "-c:v", "ffv1", "-pix_fmt", "bgr0", size="97x61"),
                  self.make("mjpeg.avi", "-c:v", "mjpeg", "-pix_fmt", "yuvj422p"),
                  self.make("mpeg4.mp4", "-c:v", "mpeg4", "-bf", "2"), self.make("mpeg2.mpg", "-c:v", "mpeg2video"),
                  self.make("gray.mp4", "-pix_fmt", "gray", "-qp", "0", size="64x64"),
                  self.make("ten.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv444p10le")]
        for path in videos:
            for width, height in ((64, 64), (256, 256), (33, 20)):
                expected, found = self.judged(path, width, height), self.decoded(path, width, height)
                self.assertEqual(len(found), 40 * width * height, path.name)
                self.assertEqual(hashlib.sha256(found).digest(), hashlib.sha256(expected).digest(), (path.name, width, height))

    def test_frames_of_a_variable_rate_count_once_each_and_the_rate_is_named(self):
        folder = self.dir / "mice"
        path = self.make("mice/Videos/m0.mkv", "-vf", r"select=not(eq(mod(n\,7)\,3)+eq(mod(n\,5)\,1))", "-vsync", "vfr", frames=30)
        count = len(self.judged(path, 16, 16)) // 256
        self.annotate(folder, "m0", 1, count)
        result = self.prepare(folder)
        self.assertEqual(result["videos"][0]["frames"], count)
        self.assertEqual(self.decoded(path, 16, 16), self.judged(path, 16, 16))

    def test_a_rotation_that_players_follow_is_named_and_its_frames_are_as_stored(self):
        folder = self.mice(2)
        stored, video = self.decoded(folder / "Videos/m0.mp4", 32, 32), self.dir / "turned.mp4"
        self.ffmpeg("-i", folder / "Videos/m0.mp4", "-c", "copy", "-metadata:s:v:0", "rotate=90", video)
        video.replace(folder / "Videos/m0.mp4")
        words = "players turn it clockwise by 270 degrees"
        self.assertEqual(self.decoded(folder / "Videos/m0.mp4", 32, 32), stored)
        self.assertEqual(self.judged(folder / "Videos/m0.mp4", 32, 32), stored)
        for found in (self.prepare(folder), self.data("check", folder, "--size", 32)):
            self.assertEqual([f["file"] for f in found["findings"] if words in f["text"]], ["m0.mp4"], found["findings"])

    def test_the_cache_holds_the_frames_that_were_decoded(self):
        folder = self.mice(1)
        result = self.prepare(folder)
        raw = pathlib.Path(result["videos"][0]["file"]).read_bytes()
        self.assertIn(self.judged(folder / "Videos/m0.mp4", 32, 32), raw)
        self.assertEqual(result["frames"], 40)

    def test_what_is_written_without_loss_comes_back_to_the_bit(self):
        raw = self.decoded(self.make("a.mp4"), 31, 21)
        sent = b"".join(b"F" + raw[at:at + 651] for at in range(0, len(raw), 651)) + b"E"
        subprocess.run([VIDEO, "encode", self.dir / "b.mp4", "--size", "21x31", "--rate", "30", "--lossless"], input=sent, check=True)
        self.assertEqual(self.decoded(self.dir / "b.mp4", 31, 21), raw)
        self.assertEqual(self.judged(self.dir / "b.mp4", 31, 21), raw)
        cut = subprocess.run([VIDEO, "encode", self.dir / "c.mp4", "--size", "21x31"], input=sent[:5000], capture_output=True)
        self.assertEqual(cut.returncode, 1)
        self.assertFalse((self.dir / "c.mp4").exists())


class Cache(Videos):
    def test_a_second_run_decodes_nothing_and_a_changed_video_is_decoded_again(self):
        folder = self.mice()
        self.assertEqual(set(self.outcomes(self.prepare(folder)).values()), {"decoded"})
        self.assertEqual(set(self.outcomes(self.prepare(folder)).values()), {"unchanged"})
        os.utime(folder / "Videos/m0.mp4")  # another time, the same content
        self.assertEqual(self.outcomes(self.prepare(folder))["m0.mp4"], "unchanged")
        self.make("mice/Videos/m1.mp4", source="testsrc", frames=44)
        found = self.data("check", folder, "--size", 32, code=2)
        self.assertIn("has changed since its frames were made", self.errors(found)["m1"])
        result = self.prepare(folder)
        self.assertEqual(self.outcomes(result), {"m0.mp4": "unchanged", "m1.mp4": "decoded"})
        self.assertTrue(self.data("check", folder, "--size", 32)["usable"])

    def test_damaged_frames_are_found_and_made_again(self):
        folder = self.mice()
        file = pathlib.Path(self.prepare(folder)["videos"][0]["file"])
        whole = file.read_bytes()
        for damage in (whole[:5000] + bytes([whole[5000] ^ 4]) + whole[5001:], whole[:-9], b"", whole[:50] + b"x" + whole[51:]):
            file.write_bytes(damage)
            self.assertIn("m0", self.errors(self.data("check", folder, "--size", 32, code=2)))
            result = self.prepare(folder)
            self.assertEqual(self.outcomes(result)["m0.mp4"], "decoded")
            self.assertEqual(result["findings"][0]["kind"], "damaged")
            self.assertEqual(file.read_bytes(), whole)

    def test_frames_of_another_video_are_refused_by_name(self):
        folder = self.mice()
        files = [pathlib.Path(video["file"]) for video in self.prepare(folder)["videos"]]
        shutil.copy(files[1], files[0])
        for found in (self.prepare(folder, code=2), self.data("check", folder, "--size", 32, code=2)):
            self.assertIn("holds the frames of m1.mp4", " ".join(self.errors(found).values()))

    def test_a_kill_loses_at_most_the_videos_in_work(self):
        folder = self.mice(6)
        # The program that decodes ends us after the third video; every later start of it would, too.
        killer = self.dir / "killer"
        killer.write_text(f"#!/bin/bash\necho >>{self.dir}/starts\n"
                          f"[[ $1 == decode && $(grep -c . {self.dir}/decodes 2>/dev/null) -ge 3 ]] && kill -KILL $PPID\n"
                          f"[[ $1 == decode ]] && echo x >>{self.dir}/decodes\nexec {VIDEO} \"$@\"\n")
        killer.chmod(0o755)
        done = self.tandem("data", "prepare", "video", folder, "--size", 32, "--jobs", 1, code=None,
                           env={"TANDEM_VIDEO_PROGRAM": str(killer)})
        self.assertEqual(done.returncode, -signal.SIGKILL)
        result = self.prepare(folder)
        self.assertEqual(sorted(self.outcomes(result).values()), ["decoded"] * 3 + ["unchanged"] * 3)
        self.assertEqual([name for name in os.listdir(folder / "frames") if name.startswith(".tmp")], [])

    def test_frames_of_another_folders_video_of_the_same_name_are_not_replaced(self):
        folder, other = self.mice(1), self.dir / "rats"
        self.make("rats/Videos/m0.mp4", source="testsrc", frames=44)
        self.annotate(other, "m0", 1, 44)
        frames = pathlib.Path(self.prepare(folder)["videos"][0]["file"])
        before = frames.read_bytes()
        refused = self.prepare(other, "--output", frames.parent, code=2)
        self.assertIn("another video of the same name", self.errors(refused)["m0.mp4"])
        self.assertEqual(frames.read_bytes(), before)
        self.assertEqual(self.outcomes(self.prepare(other)), {"m0.mp4": "decoded"})

    def test_training_needs_frames_alone(self):
        folder = self.mice()
        self.prepare(folder)
        shutil.rmtree(folder / "Videos")
        self.assertTrue(self.data("check", folder, "--size", 32)["usable"])
        self.assertEqual(set(self.outcomes(self.prepare(folder)).values()), {"frames alone"})

    def test_links_lead_nowhere(self):
        folder = self.mice(1)
        secret = self.make("elsewhere/secret.mp4")
        (folder / "Videos/m5.mp4").symlink_to(secret)
        result = self.prepare(folder)
        self.assertEqual(self.outcomes(result), {"m0.mp4": "decoded"})
        self.assertIn("a symbolic link, which is left out", json.dumps(result["findings"]))

    def test_a_build_without_ffmpeg_says_so(self):
        folder = self.mice(1)
        alone = self.dir / "bin"
        alone.mkdir()
        shutil.copy(TANDEM, alone)
        done = subprocess.run([alone / "tandem", "data", "prepare", "video", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("TANDEM_FFMPEG=off", done.stdout + done.stderr)


class BadVideos(Videos):
    def test_videos_that_cannot_be_used_are_named_and_the_others_go_on(self):
        folder = self.mice(1)
        videos = folder / "Videos"
        (videos / "empty.mp4").write_bytes(b"")
        (videos / "text.mp4").write_bytes(b"Frame,Action\n0,1\n" * 100)
        whole = self.make("whole.mp4", "-movflags", "+faststart", size="320x240", frames=60).read_bytes()
        (videos / "cut.mp4").write_bytes(whole[:len(whole) // 2])
        noindex = self.make("noindex.mp4").read_bytes()
        (videos / "noindex.mp4").write_bytes(noindex[:len(noindex) // 2])
        self.ffmpeg("-f", "lavfi", "-i", "sine=d=1", videos / "sound.mp4")
        (videos / "list.avi").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n")
        result = self.prepare(folder, code=2)
        errors = self.errors(result)
        self.assertEqual(self.outcomes(result)["m0.mp4"], "decoded")
        for name, words in (("empty.mp4", "the file is empty"), ("text.mp4", "can't be read as a video"),
                            ("cut.mp4", "it ends early"), ("noindex.mp4", "moov atom not found"),
                            ("sound.mp4", "no stream of pictures"), ("list.avi", "can't be read as a video")):
            self.assertIn(words, errors.get(name, "no error"), name)
        kept = self.prepare(folder, "--accept-damaged", code=2)
        self.assertEqual(self.outcomes(kept)["cut.mp4"], "decoded")
        self.assertNotIn("cut.mp4", self.errors(kept))

    def test_damage_inside_a_video_is_named(self):
        folder = self.mice(1)
        path = folder / "Videos/m0.mp4"
        whole = bytearray(path.read_bytes())
        start = whole.index(b"mdat") + 1200
        whole[start:start + 400] = bytes(400)
        path.write_bytes(whole)
        self.assertIn("damaged", self.errors(self.prepare(folder, code=2))["m0.mp4"])

    def packets(self, path):
        """(byte, bytes, is it a key frame) of each, in the order of decoding."""
        said = subprocess.run([FFPROBE, "-v", "error", "-select_streams", "v", "-show_entries", "packet=pos,size,flags",
                               "-of", "csv=p=0", path], check=True, capture_output=True, text=True).stdout
        return [(int(pos), int(size), flags.startswith("K")) for size, pos, flags in (line.split(",")[:3] for line in said.split())]

    def with_sound(self, name, *coding):
        return self.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=25", "-f", "lavfi", "-i", "sine=d=20", "-frames:v", 150, *coding,
                           self.dir / name) or self.dir / name

    def test_a_frame_that_is_lost_keeps_its_place_and_those_behind_it_theirs(self):
        folder = self.dir / "mice"
        whole_path = self.make("whole.mp4", "-bf", "2", "-g", "20", frames=60)
        whole, packets = whole_path.read_bytes(), self.packets(whole_path)
        self.annotate(folder, "m0", 1, 60)
        (folder / "Videos").mkdir()
        video = folder / "Videos/m0.mp4"
        frames = [self.decoded(whole_path, 32, 32)[at:at + 1024] for at in range(0, 60 * 1024, 1024)]
        for lost, first, behind in ((25, 20, 40), (20, 20, 40), (0, 0, 20)):
            start, size, key = packets[lost]
            damaged = bytearray(whole)
            damaged[start:start + size] = b"\xff" * size
            video.write_bytes(damaged)
            refused = self.errors(self.prepare(folder, code=2))["m0.mp4"]
            self.assertIn("Invalid data found", refused, "the decoder's own reason")
            self.assertIn("lost frame", refused)
            kept = self.prepare(folder, "--accept-damaged")
            self.assertEqual(kept["videos"][0]["frames"], 60, lost)
            raw = pathlib.Path(kept["videos"][0]["file"]).read_bytes()[4096:]
            found = [raw[at:at + 1024] for at in range(0, 60 * 1024, 1024)]
            self.assertEqual(found[:first] + found[behind:], frames[:first] + frames[behind:], f"packet {lost}, a key: {key}")

    def test_a_video_with_sound_that_was_cut_is_named_and_a_whole_one_is_not(self):
        videos = self.dir / "mice" / "Videos"
        videos.mkdir(parents=True)
        names = []
        for ending, coding in (("mkv", ()), ("mp4", ("-movflags", "+faststart")), ("avi", ("-c:v", "mpeg4")), ("flv", ())):
            path = self.with_sound(f"mice/Videos/whole_{ending}.{ending}", "-shortest", *coding)
            data = path.read_bytes()
            for share in (0.5, 0.9):
                name = f"cut_{ending}_{share}.{ending}"
                (videos / name).write_bytes(data[:int(share * len(data))])
                names.append(name)
        errors = self.errors(self.prepare(self.dir / "mice", code=2))
        self.assertEqual(sorted(errors), sorted(names))
        for name in names:
            self.assertIn("it ends early", errors[name], name)

    def test_no_videos_and_no_folder_are_refused(self):
        (self.dir / "nothing").mkdir()
        for folder, words in (("nothing", "no videos in"), ("missing", "there is no folder")):
            for word in ("prepare", "check"):
                self.assert_explains(self.tandem("data", word, "video", folder, code=2), words)
        self.assert_explains(self.tandem("data", "prepare", "video", "nothing", "--size", "0x3", code=2), "is no size")
        self.assert_explains(self.tandem("data", "prepare", "options", "nothing", code=2), 'no data prepare for "options"')
        self.assert_explains(self.tandem("data", "check", "video", "nothing", "--jobs", 2, code=2), "has no flag --jobs")

    def test_annotations_are_checked_by_file_and_line(self):
        folder = self.mice(2)
        self.prepare(folder)
        self.assertTrue(self.data("check", folder, "--size", 32)["usable"])
        self.annotate(folder, "m0", 2, 5)  # beyond the end
        self.annotate(folder, "ghost", 1, 5)  # without a video
        text = (folder / "Annotations/prediction_m1_1.csv").read_text()
        for change, words in ((text.replace("\n7,", "\n7,x"), "unknown label"), (text.replace("\n7,1\n", "\n"), "1 frame missing before 8"),
                              (text.replace("\n7,1\n", "\n7,1\n7,1\n"), "frame 7 stands there twice")):
            (folder / "Annotations/prediction_m1_1.csv").write_text(change)
            found = self.data("check", folder, "--size", 32, code=2)
            wrong = [f for f in found["findings"] if words in f["text"]]
            self.assertEqual([(f["file"], f["level"]) for f in wrong], [("Annotations/prediction_m1_1.csv", "error")], found)
            self.assertIn(wrong[0]["line"], (9, 10))
            self.assertIn("there is no video ghost", self.errors(found)["Annotations/prediction_ghost_1.csv"])
            self.assertIn("the whole trial", json.dumps(found["findings"]))

    def test_trials_that_are_missing_or_apart_are_named(self):
        folder = self.mice(1, frames=120)
        self.prepare(folder)
        self.annotate(folder, "m0", 1, 40)
        self.annotate(folder, "m0", 3, 40)
        self.assertIn("trial 2 is not there", self.errors(self.data("check", folder, "--size", 32, code=2))["Annotations/prediction_m0_3.csv"])
        file = folder / "Annotations/prediction_m0_3.csv"
        file.write_text("Frame,Action\n" + "".join(f"{i},1\n" for i in range(80, 120)))  # it counts on through the video
        self.assertIn("40 frames missing before 80", self.errors(self.data("check", folder, "--size", 32, code=2))[file.relative_to(folder).as_posix()])
        self.assertEqual(self.data("check", folder, "--size", 32, "--accept-gaps")["errors"], 0)
        file.unlink()
        found = self.data("check", folder, "--size", 32)
        self.assertIn("80 frames behind the last trial of 1 video are not trained on (m0: 80)", json.dumps(found["findings"]))

    def test_a_video_without_annotations_is_a_warning(self):
        folder = self.mice(2)
        (folder / "Annotations/prediction_m1_1.csv").unlink()
        self.prepare(folder)
        found = self.data("check", folder, "--size", 32)
        self.assertIn("not trained on", json.dumps(found["findings"]))
        self.assertEqual(found["videos"], 1)


if __name__ == "__main__":
    skips.main()
